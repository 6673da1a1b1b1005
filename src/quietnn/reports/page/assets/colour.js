// Colours: those of the printed figures in the light, lifted in the dark until they stand out as well.

const DARK_PAPER = "#171a21";
const LIGHT_PAPER = "#ffffff";

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function hex(values) {
  const bytes = values.map((value) => Math.round(Math.min(255, Math.max(0, value))));
  return `#${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function mix(one, other, share) {
  const [a, b] = [channels(one), channels(other)];
  return hex(a.map((value, at) => value + share * (b[at] - value)));
}

function luminance(colour) {
  const [r, g, b] = channels(colour).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

// The colour itself, or as much of black or white mixed in as the contrast needs.
function against(colour, paper, ratio) {
  const ink = luminance(paper) > 0.5 ? "#000000" : "#ffffff";
  for (let share = 0; share < 1; share += 0.05) {
    const found = mix(colour, ink, share);
    if (contrast(found, paper) >= ratio) return found;
  }
  return ink;
}

function lineColour(colour) {
  return `light-dark(${colour}, ${against(colour, DARK_PAPER, 4.5)})`;
}

function textColour(colour) {
  return `light-dark(${against(colour, LIGHT_PAPER, 4.5)}, ${against(colour, DARK_PAPER, 6)})`;
}

// Cividis, sampled: even in lightness, and the same to readers with and without colour vision.
const CIVIDIS = ["#00224e", "#0a316f", "#2f416b", "#48526b", "#5d626e", "#707173", "#848379", "#9b9577", "#b3a770",
  "#ccbb63", "#e6cf51", "#fee838"];
const VIRIDIS = ["#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151",
  "#bddf26", "#fde725"];

function shade(map, share) {
  const place = Math.min(1, Math.max(0, share)) * (map.length - 1);
  const low = Math.min(map.length - 2, Math.floor(place));
  return mix(map[low], map[low + 1], place - low);
}

function isDark() {
  const scheme = document.documentElement.style.colorScheme;
  if (scheme === "dark" || scheme === "light") return scheme === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

const DASHES = { "-": null, "--": "7 4", "-.": "8 3 2 3", ":": "2 3" };

// Markers by the names that the printed figures use.
const MARKERS = {
  s: "M-4-4H4V4H-4Z", v: "M0 5L-5-4H5Z", "^": "M0-5L5 4H-5Z", "<": "M-5 0L4-5V5Z", ">": "M5 0L-4 5V-5Z",
  D: "M0-5.5L5.5 0 0 5.5-5.5 0Z", d: "M0-6L3.6 0 0 6-3.6 0Z", p: "M0-5L4.8-1.5 2.9 4.1H-2.9L-4.8-1.5Z",
  "*": "M0-6.5L1.6-2.1 6.2-2 2.5.8 3.8 5.3 0 2.6-3.8 5.3-2.5.8-6.2-2-1.6-2.1Z",
  P: "M-1.8-5H1.8V-1.8H5V1.8H1.8V5H-1.8V1.8H-5V-1.8H-1.8Z",
  X: "M-5-2.4L-2.4-5 0-2.6 2.4-5 5-2.4 2.6 0 5 2.4 2.4 5 0 2.6-2.4 5-5 2.4-2.6 0Z",
  h: "M0-5L4.3-2.5V2.5L0 5-4.3 2.5V-2.5Z", H: "M-5 0L-2.5-4.3H2.5L5 0 2.5 4.3H-2.5Z",
  8: "M-2-5H2L5-2V2L2 5H-2L-5 2V-2Z", 1: "M0 1L-4-4H4Z",
  2: "M-5-4H5L-5 4H5Z", 3: "M-4-5V5L4-5V5Z", 4: "M-5 2A5 5 0 0 1 5 2Z",
  $W$: "M-6-4H-3.6L-2 1 0-4 2 1 3.6-4H6L3 4H1L0 1-1 4H-3Z",
  $M$: "M-4 4V-4H-2L0-1L2-4H4V4H2V0L0 3L-2 0V4Z", $Q$: "M-4-4H4V2H2L4 4H1L-1 2H-4ZM-2-2V0H2V-2Z",
  $S$: "M4-4V-2H-2V-1H4V4H-4V2H2V1H-4V-4Z", $U$: "M-4-4H-1.5V1.5H1.5V-4H4V4H-4Z",
  $E$: "M-3.5-4H3.5V-1.9H-1V-1H2.5V1H-1V1.9H3.5V4H-3.5Z", $B$: "M-3.5-4H1.5L3.5-2V-.8L2.5 0 3.5.8V2L1.5 4H-3.5Z",
  $Y$: "M-4-4H-1.5L0-1 1.5-4H4L1.2 1V4H-1.2V1Z", $C$: "M4-4V-1.5H-1.5V1.5H4V4H-4V-4Z",
  $D$: "M-3.5-4H1L3.5-1.5V1.5L1 4H-3.5Z", $L$: "M-3.5-4H-1V1.5H3.5V4H-3.5Z",
  $A$: "M-1.2-4.5H1.2L4.2 4H1.8L1 1.6H-1L-1.8 4H-4.2Z", $T$: "M-4-4H4V-1.8H1.2V4H-1.2V-1.8H-4Z",
  $N$: "M-4-4H-1.6L1.6 1V-4H4V4H1.6L-1.6-1V4H-4Z", $F$: "M-3.5-4H3.5V-1.9H-1V-1H2.5V1H-1V4H-3.5Z",
  $R$: "M-3.5-4H1.5L3.5-2V0L2 1 3.8 4H1.2L-.2 1.4H-1V4H-3.5Z", $3$: "M-3.5-4H3.5V4H-3.5V2H1V1H-2V-1H1V-2H-3.5Z",
  $O$: "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0-4.5 0ZM-2 0A2 2 0 1 1 2 0A2 2 0 1 1-2 0Z",
  $H$: "M-4-4H-1.8V-1H1.8V-4H4V4H1.8V1H-1.8V4H-4Z", $Z$: "M-4-4H4V-2L-.8 2H4V4H-4V2L.8-2H-4Z",
  $K$: "M-4-4H-1.8V-1L1.4-4H4L.6 0 4 4H1.4L-1.8 1V4H-4Z",
  "|": "M-1.4-6H1.4V6H-1.4Z", _: "M-6-1.4H6V1.4H-6Z", ".": "M-2.5 0A2.5 2.5 0 1 0 2.5 0A2.5 2.5 0 1 0-2.5 0Z",
  "+": "M-1-5.5H1V-1H5.5V1H1V5.5H-1V1H-5.5V-1H-1Z",
  x: "M-5-3.6L-3.6-5 0-1.4 3.6-5 5-3.6 1.4 0 5 3.6 3.6 5 0 1.4-3.6 5-5 3.6-1.4 0Z",
};
const DISC = "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0-4.5 0Z";

function marker(series, x, y, scale = 1) {
  return s("path", {
    d: MARKERS[series.marker] ?? DISC,
    transform: `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${scale})`,
    fill: series.hollow ? "var(--card)" : lineColour(series.colour),
    stroke: series.hollow ? lineColour(series.colour) : "var(--card)",
    "stroke-width": series.hollow ? 1.6 : 0.8,
  });
}
