// Before anything is painted: the theme that was chosen here, else the system's.
(() => {
  try {
    const chosen = localStorage.getItem("reput-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* storage may be switched off */ }
})();
