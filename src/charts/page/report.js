// Shows the values under the pointer. The points are in the JSON element of each figure, in units of its SVG.
for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg"), cursor = svg.querySelector(".cursor"), box = figure.querySelector("output");
  const chart = JSON.parse(figure.querySelector("script").textContent);
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
  };
  const hide = () => { box.hidden = true; cursor.setAttribute("visibility", "hidden"); };
  hide();
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", event => {
    const bounds = svg.getBoundingClientRect();
    const part = ((event.clientX - bounds.left) / bounds.width * chart.width - chart.left) / chart.plot;
    if (part < 0 || part > 1) return hide();
    const x = chart.low + part * (chart.high - chart.low);
    const lines = [];
    for (const run of chart.runs) {
      if (run.x.length === 0) continue;
      const i = nearest(run.x, x);
      lines.push(`${run.name}  ${chart.x} ${Number(run.x[i].toPrecision(6))}:  ${Number(run.y[i].toPrecision(5))}`);
    }
    if (lines.length === 0) return;
    box.hidden = false;
    box.textContent = lines.join("\n");
    const at = event.clientX - bounds.left;
    box.style.left = at < bounds.width / 2 ? `${at + 12}px` : "auto";
    box.style.right = at < bounds.width / 2 ? "auto" : `${bounds.width - at + 12}px`;
    const line = chart.left + part * chart.plot;
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", line);
    cursor.setAttribute("x2", line);
  });
}
