"""What a store holds: inspection, figures, the life of a message, differences between stores."""
