// The functions of numbers.py, number for number.
const UNKNOWN = "\u2013";
const MINUS = "\u2212";
const SPACE = "\u00a0";
const DIGITS = 4;
const LARGEST = 1e15;
const MOST_PLACES = 10;

const known = (value) => typeof value === "number" && Number.isFinite(value);

function exponent(value, digits = DIGITS) {
  return parseInt(Math.abs(value).toExponential(digits - 1).split("e")[1], 10);
}

function fixed(size, places) {
  const [whole, rest] = size.toFixed(places).split(".");
  const apart = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return rest === undefined ? apart : `${apart}.${rest}`;
}

function number(value, places = null) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  let text;
  if (size >= LARGEST || (size > 0 && size < 10 ** -MOST_PLACES && places === null)) {
    const [head, tail] = size.toExponential(3).split("e");
    text = `${head.replace(/0+$/, "").replace(/\.$/, "")}e${parseInt(tail, 10)}`;
  } else if (places === null) {
    const wanted = size === 0 ? 0 : Math.min(Math.max(DIGITS - 1 - exponent(size), 0), MOST_PLACES + DIGITS);
    text = fixed(size, wanted);
    if (text.includes(".")) text = text.replace(/0+$/, "").replace(/\.$/, "");
  } else {
    text = fixed(size, places);
  }
  return value < 0 && /[1-9e]/.test(text) ? MINUS + text : text;
}

function amount(value, places = null, unit = "", signed = false) {
  const text = number(value, places);
  if (text === UNKNOWN) return text;
  const minus = text.startsWith(MINUS) ? MINUS : "";
  const size = text.slice(minus.length);
  const sign = minus || (signed && /[1-9e]/.test(size) ? "+" : "");
  return /\p{L}/u.test(unit) ? `${sign}${size}${SPACE}${unit}` : `${sign}${unit}${size}`;
}

const twoDigits = (value) => Number(value.toExponential(1));

const count = (value) => number(value, 0);

function percent(share) {
  if (!known(share)) return UNKNOWN;
  const size = 100 * share;
  if (size > 0 && size < 0.1) return `<0.1${SPACE}%`;
  if (size > 99.9 && size < 100) return `>99.9${SPACE}%`;
  return `${number(size, size >= 10 && size <= 90 ? 0 : 1).replace(/\.0$/, "")}${SPACE}%`;
}

function chance(probability) {
  return known(probability) ? percent(Math.min(Math.max(probability, 0.0005), 0.9995)) : UNKNOWN;
}

function quantile(quantiles, probability) {
  const last = quantiles.length - 1;
  const place = Math.min(Math.max(probability * quantiles.length - 0.5, 0), last);
  const below = Math.max(Math.min(Math.floor(place), last - 1), 0);
  const above = Math.min(below + 1, last);
  return quantiles[below] + (place - below) * (quantiles[above] - quantiles[below]);
}

function interval(quantiles, level) {
  if (!quantiles || !quantiles.length) return null;
  return [quantile(quantiles, 0.5 - level / 2), quantile(quantiles, 0.5 + level / 2)];
}

// Marsaglia's series: all digits within seven standard deviations, and 0 or 1 beyond.
function normalCdf(value) {
  if (value > 7) return 1;
  if (value < -7) return 0;
  let term = value;
  let sum = value;
  for (let i = 3; Math.abs(term) > 1e-17; i += 2) {
    term *= (value * value) / i;
    sum += term;
  }
  return 0.5 + (sum * Math.exp((-value * value) / 2)) / Math.sqrt(2 * Math.PI);
}

function reach(level) {
  let [low, high] = [0, 7];
  for (let i = 0; i < 60; i += 1) {
    const middle = (low + high) / 2;
    if (normalCdf(middle) < 0.5 + level / 2) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}
