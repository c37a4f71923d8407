// Set the theme before the first paint: the theme that the user chose here, or else the system's theme.
(() => {
  document.documentElement.classList.add("scripted");
  try {
    const chosen = localStorage.getItem("reput-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* storage may be switched off */ }
})();

// The user can stop a search while its page is still loading. Do not submit the form: that would end the loading.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-stop]")) return;
  event.preventDefault();
  event.target.querySelector("button").disabled = true;
  fetch(event.target.action, { method: "POST" });
});
