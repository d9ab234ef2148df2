// Colours of the page's light or dark scheme, and fills with a pattern.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const NAMES = ["page", "surface", "raised", "line", "text", "quiet", "accent", "alarm", "grid"];
  const FALLBACK = {
    page: "#f6f7f9", surface: "#ffffff", raised: "#eef1f5", line: "#e2e6ec", text: "#1b2330",
    quiet: "#566070", accent: "#0b62b0", alarm: "#b42318", grid: "#e6e9ee",
  };

  tl.Theme = class {
    constructor() {
      this.patterns = new Map();
      this.read();
    }

    // Reads the variables of the page's style sheet; they change with the scheme.
    read() {
      const style = getComputedStyle(document.documentElement);
      for (const name of NAMES) {
        this[name] = style.getPropertyValue(`--${name}`).trim() || FALLBACK[name];
      }
      this.dark = luminance(this.surface) < 0.3;
      this.patterns.clear();
    }

    // The fill of a state: its colour, or its colour under a pattern.
    fill(context, state, ratio) {
      if (!state.pattern) return state.colour;
      const key = `${state.colour}${state.pattern}${ratio}`;
      if (!this.patterns.has(key)) {
        this.patterns.set(key, patterned(context, state.colour, state.pattern, ratio));
      }
      return this.patterns.get(key);
    }

    // Lines of a pattern alone, for what is drawn behind a lane.
    hatch(context, state, ratio) {
      const key = `hatch${state.colour}${state.pattern}${ratio}${this.dark}`;
      if (!this.patterns.has(key)) {
        this.patterns.set(key, patterned(context, null, state.pattern || "/", ratio, state.colour));
      }
      return this.patterns.get(key);
    }

    // Black or white, whichever is read better on a colour.
    on(colour) {
      return luminance(colour) > 0.36 ? "#10151c" : "#ffffff";
    }
  };

  const luminances = new Map();

  function luminance(colour) {
    if (!luminances.has(colour)) {
      const hex = colour.replace("#", "");
      const [r, g, b] = [0, 2, 4].map((i) => {
        const value = parseInt(hex.slice(i, i + 2), 16) / 255;
        return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
      });
      luminances.set(colour, 0.2126 * r + 0.7152 * g + 0.0722 * b);
    }
    return luminances.get(colour);
  }

  const SHAPES = {
    "/": (c, s) => line(c, [[-1, 1, 1, -1], [0, s, s, 0], [s - 1, s + 1, s + 1, s - 1]]),
    "\\": (c, s) => line(c, [[-1, s - 1, 1, s + 1], [0, 0, s, s], [s - 1, -1, s + 1, 1]]),
    x: (c, s) => line(c, [[0, 0, s, s], [0, s, s, 0]]),
    "-": (c, s) => line(c, [[0, s / 2, s, s / 2]]),
    "|": (c, s) => line(c, [[s / 2, 0, s / 2, s]]),
    "+": (c, s) => line(c, [[0, s / 2, s, s / 2], [s / 2, 0, s / 2, s]]),
    ".": (c, s) => {
      c.beginPath();
      c.arc(s / 2, s / 2, 1.2, 0, 7);
      c.fill();
    },
  };

  function line(context, segments) {
    context.beginPath();
    for (const [x0, y0, x1, y1] of segments) {
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
    }
    context.stroke();
  }

  function patterned(context, colour, shape, ratio, ink) {
    const size = 7;
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(size * ratio);
    const c = tile.getContext("2d");
    c.scale(tile.width / size, tile.height / size);
    if (colour) {
      c.fillStyle = colour;
      c.fillRect(0, 0, size, size);
    }
    const over = ink || (luminance(colour) > 0.36 ? "rgba(0,0,0,.42)" : "rgba(255,255,255,.55)");
    c.strokeStyle = c.fillStyle = over;
    c.globalAlpha = ink ? 0.55 : 1;
    c.lineWidth = 1.1;
    (SHAPES[shape] || SHAPES["/"])(c, size);
    const pattern = context.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / ratio));
    return pattern;
  }
})(window.rlTimeline);
