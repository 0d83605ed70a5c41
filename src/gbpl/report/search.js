// Finds explained rows: all words must be in a row's text.
function startSearch() {
  const box = byId("search");
  const rows = all("[data-search]");
  byId("search-controls").hidden = false;
  box.value = "";
  box.addEventListener("input", () => {
    const wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = rows.filter((row) => wanted.every((word) => row.dataset.search.includes(word)));
    rows.forEach((row) => { row.hidden = !hits.includes(row); });
    if (wanted.length && hits.length) hits[0].open = true;
    byId("search-found").textContent = wanted.length ? `${count(hits.length)} of ${count(rows.length)} rows.` : "";
  });
}

extras.push({ start: startSearch });
