// Moves the marks of the charts; scales and ticks as in svg.py, curves as in intervals.py.
const SVG = "http://www.w3.org/2000/svg";
const WIDE = 1000;
const EDGE = 0.03;
const ROOM = 0.3;
const COLUMNS = 12;

const scaled = (low, high) => (value) => Math.min(Math.max((value - low) / (high - low), 0), 1);
const across = (place) => `${100 * place}%`;

function roundTicks(low, high, most) {
  const least = (high - low) / most;
  const power = exponent(least, 16);
  const times = [1, 2, 2.5, 5, 10].find((t) => t * 10 ** power >= least * (1 - 1e-9));
  const step = times * 10 ** power;
  const places = Math.max(0, (times === 2.5 ? 1 : 0) - power - (times === 10 ? 1 : 0));
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => [(first + i) * step, number((first + i) * step, places)]);
}

function ticks(low, high, narrow = false) {
  const many = roundTicks(low, high, 5);
  if (many.some(([, label]) => label.length > 8)) return roundTicks(low, high, 3);
  return narrow ? roundTicks(low, high, 4) : many;
}

function element(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.textContent = text;
  return made;
}

function set(target, attributes) {
  if (target) Object.entries(attributes).forEach(([key, value]) => target.setAttribute(key, value));
}

function drawAxis(svg, low, high, top, height, narrow = false) {
  const at = scaled(low, high);
  const marks = ticks(low, high, narrow).flatMap(([value, label]) => {
    const place = at(value);
    const anchor = place < EDGE ? "start" : place > 1 - EDGE ? "end" : "middle";
    const x = across(place);
    return [
      element("line", { x1: x, x2: x, y1: top, y2: height + 4, class: "grid" }),
      element("text", { x, y: height + 17, "text-anchor": anchor, class: "tick" }, label),
    ];
  });
  svg.querySelector(".axis").replaceChildren(...marks);
}

function heightAt(curve, value) {
  const last = curve.x.length - 1;
  const place = ((value - curve.x[0]) / (curve.x[last] - curve.x[0])) * last;
  const below = Math.min(Math.max(Math.floor(place), 0), last - 1);
  const share = Math.min(Math.max(place - below, 0), 1);
  return curve.height[below] + share * (curve.height[below + 1] - curve.height[below]);
}

function area(curve, low, high, tall, closed) {
  const at = scaled(curve.x[0], curve.x[curve.x.length - 1]);
  const inner = curve.x.map((x, i) => [x, curve.height[i]]).filter(([x]) => x > low && x < high);
  const points = [[low, heightAt(curve, low)], ...inner, [high, heightAt(curve, high)]];
  const path = `M${points.map(([x, h]) => `${(WIDE * at(x)).toFixed(1)} ${(tall * (1 - 0.97 * h)).toFixed(1)}`).join("L")}`;
  return closed ? `${path}L${(WIDE * at(high)).toFixed(1)} ${tall}L${(WIDE * at(low)).toFixed(1)} ${tall}Z` : path;
}

// The curve is that of the fit, moved and widened as its quantiles are.
function drawDensity(svg, curve, estimate, low, high, label) {
  const tall = Number(svg.dataset.height);
  const [first, last] = [curve.x[0], curve.x[curve.x.length - 1]];
  const [whole, inside] = svg.querySelectorAll(".area");
  set(whole, { d: area(curve, first, last, tall, true) });
  set(inside, { d: area(curve, low, high, tall, true) });
  set(svg.querySelector(".outline"), { d: area(curve, first, last, tall, false) });
  const x = across(scaled(first, last)(estimate));
  set(svg.querySelector(".estimate"), { x1: x, x2: x });
  drawAxis(svg, first, last, tall, tall);
  svg.setAttribute("aria-label", label);
}

// Rows with a label of their own have it written: another alternative may stand there now.
function drawForest(svg, rows, write, label) {
  const shown = rows.filter((row) => row.known && svg.querySelector(`[data-point="${row.place}"]`));
  const reaches = [0, ...shown.flatMap((row) => row.widest)];
  const room = 0.04 * (Math.max(...reaches) - Math.min(...reaches)) || 0.5;
  const [low, high] = [Math.min(...reaches) - room, Math.max(...reaches) + room];
  const at = scaled(low, high);
  rows.forEach((row) => {
    const marks = ["point", "reach"].map((kind) => svg.querySelector(`[data-${kind}="${row.place}"]`));
    marks.forEach((mark) => mark && (mark.style.display = row.known ? "" : "none"));
    const written = svg.querySelector(`[data-written="${row.place}"]`);
    if (written) written.textContent = write(row.gain);
    const name = svg.querySelector(`[data-name="${row.place}"]`);
    if (name) name.classList.toggle("best", row.best);
    if (name && row.label !== undefined) name.textContent = row.label;
    if (!row.known) return;
    set(marks[0], { cx: across(at(row.gain)) });
    if (marks[0]) marks[0].querySelector("title").textContent = `${name.textContent}: ${write(row.gain)}`;
    set(marks[1], { x1: across(at(row.low)), x2: across(at(row.high)) });
  });
  const zero = at(0);
  svg.querySelectorAll('[data-mark="zero"]').forEach((line) => set(line, { x1: across(zero), x2: across(zero) }));
  [["worse", zero >= ROOM], ["better", zero <= 1 - ROOM]].forEach(([mark, fits]) => {
    const words = svg.querySelector(`[data-mark="${mark}"]`);
    words.setAttribute("x", across(zero));
    words.style.display = fits ? "" : "none";
  });
  drawAxis(svg, low, high, Number(svg.dataset.height), Number(svg.dataset.height));
  svg.setAttribute("aria-label", label);
}

// Every chart of points has room for the widest bars, so its axis stays.
function drawErrorBars(level) {
  const wide = reach(level);
  document.querySelectorAll("svg[data-low]").forEach((svg) => {
    const at = scaled(Number(svg.dataset.low), Number(svg.dataset.high));
    const tall = Number(svg.dataset.height);
    svg.querySelectorAll("[data-se]").forEach((bar) => {
      const [mean, se] = [Number(bar.dataset.mean), Number(bar.dataset.se)];
      set(bar, { y1: tall * (1 - at(mean - wide * se)), y2: tall * (1 - at(mean + wide * se)) });
    });
  });
}

// Two bars from zero, and what the second has more or less than the first; as in glance.py.
function drawBars(svg, pair, write, label) {
  const values = pair.map(([, value]) => value);
  const low = Math.min(0, ...values);
  const width = Math.max(0, ...values) - low || 1;
  const bar = (place, start, end) => set(svg.querySelector(`[data-bar="${place}"]`), {
    x: across((Math.min(start, end) - low) / width), width: across(Math.abs(end - start) / width),
  });
  pair.forEach(([name, value], place) => {
    svg.querySelector(`[data-bar-name="${place}"]`).textContent = name;
    svg.querySelector(`[data-bar-value="${place}"]`).textContent = write(value);
    bar(place, 0, value);
  });
  bar(2, ...values);
  svg.querySelector('[data-bar="2"]').setAttribute("class", values[1] < values[0] ? "bar less" : "bar more");
  svg.setAttribute("aria-label", label);
}

// Equally likely values in columns, filled where they are above zero.
function drawDots(svg, values, label) {
  const tall = Number(svg.dataset.height);
  const all = [0, ...values];
  const room = 0.04 * (Math.max(...all) - Math.min(...all)) || 0.5;
  const [low, high] = [Math.min(...all) - room, Math.max(...all) + room];
  const at = scaled(low, high);
  const columns = values.map((value) => Math.min(Math.trunc(at(value) * COLUMNS), COLUMNS - 1));
  const times = columns.map((column) => columns.filter((other) => other === column).length);
  const step = Math.min(14, (tall - 2) / Math.max(...times));
  values.forEach((value, place) => {
    const above = columns.slice(0, place).filter((column) => column === columns[place]).length;
    set(svg.querySelector(`[data-dot="${place}"]`), {
      cx: across((columns[place] + 0.5) / COLUMNS), cy: tall - 8 - step * above, class: value > 0 ? "dot" : "dot hollow",
    });
  });
  set(svg.querySelector('[data-mark="zero"]'), { x1: across(at(0)), x2: across(at(0)) });
  drawAxis(svg, low, high, tall, tall, true);
  svg.setAttribute("aria-label", label);
}
