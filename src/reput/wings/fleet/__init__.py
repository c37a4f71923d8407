"""Watch many stores: state, lag, faults of brokers, figures for monitoring. Other rooms use `api`."""
