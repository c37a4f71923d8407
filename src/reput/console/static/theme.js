// Before anything is painted: the theme that was chosen here, else the system's.
(() => {
  document.documentElement.classList.add("scripted");
  try {
    const chosen = localStorage.getItem("reput-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* storage may be switched off */ }
})();

// A search is stopped while its page still arrives. To submit the form would cut the page off.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-stop]")) return;
  event.preventDefault();
  event.target.querySelector("button").disabled = true;
  fetch(event.target.action, { method: "POST" });
});
