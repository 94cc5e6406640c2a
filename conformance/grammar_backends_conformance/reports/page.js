// Filters the lists of failing cases. The page is complete without it.
(() => {
  const form = document.querySelector(".filter");
  const text = form.querySelector("input");
  const outcome = form.querySelector("select");
  const apply = () => {
    const wanted = text.value.toLowerCase();
    for (const list of document.querySelectorAll("details.failing")) {
      let shown = 0;
      for (const row of list.querySelectorAll("tbody tr")) {
        const fits = (!outcome.value || row.dataset.outcome === outcome.value)
          && row.textContent.toLowerCase().includes(wanted);
        row.hidden = !fits;
        shown += fits;
      }
      list.querySelector(".shown").textContent = shown;
    }
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
})();
