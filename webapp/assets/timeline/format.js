// Times and values as text.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

  function significant(value, digits) {
    return Number(value.toPrecision(digits)).toString();
  }

  // 0.00125 -> "1.25 ms", 75 -> "1 m 15 s".
  tl.duration = function (seconds, digits = 3) {
    if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
    if (seconds < 0) return "−" + tl.duration(-seconds, digits);
    if (seconds === 0) return "0 s";
    if (seconds >= 60) {
      const whole = Math.round(seconds);
      const [h, m, s] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
      if (h) return `${h} h ${String(m).padStart(2, "0")} m`;
      return `${m} m ${String(s).padStart(2, "0")} s`;
    }
    const [unit, name] = UNITS.find(([u]) => seconds >= u * 0.9995) || UNITS[3];
    return `${significant(seconds / unit, digits)} ${name}`;
  };

  // A moment since the start of the run, as fine as `step` seconds: "1:02:03", "12.345 s".
  tl.moment = function (seconds, step = 0.001) {
    const sign = seconds < 0 ? "−" : "";
    const decimals = step >= 1 ? 0 : Math.min(9, Math.ceil(-Math.log10(step) - 1e-9));
    const rounded = Number(Math.abs(seconds).toFixed(decimals));
    if (rounded < 60) return `${sign}${rounded.toFixed(decimals)} s`;
    const h = Math.floor(rounded / 3600);
    const m = Math.floor((rounded - h * 3600) / 60);
    const s = (rounded - h * 3600 - m * 60).toFixed(decimals);
    const padded = s.padStart(decimals ? decimals + 3 : 2, "0");
    return sign + (h ? `${h}:${String(m).padStart(2, "0")}:${padded}` : `${m}:${padded}`);
  };

  tl.percent = function (share) {
    if (share === null || !Number.isFinite(share)) return "–";
    const value = share * 100;
    if (value !== 0 && Math.abs(value) < 0.1) return "< 0.1 %";
    return `${value >= 99.95 || value < 10 ? significant(value, 2) : value.toFixed(1)} %`;
  };

  const POWERS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

  tl.quantity = function (value, unit) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (unit === "ratio") return tl.percent(value);
    const [power, prefix] = POWERS.find(([p]) => Math.abs(value) >= p) || [1, ""];
    const text = significant(value / power, 3);
    if (unit === "bytes") return `${text} ${prefix}B`;
    return prefix ? `${text} ${prefix}` : text;
  };

  // Spacing and first of round ticks, `pixels` apart or more.
  tl.ticks = function (from, to, width, pixels = 110) {
    const least = ((to - from) / Math.max(1, width)) * pixels;
    const round = [60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400];
    let step = least > 45 ? round.find((r) => r >= least) : undefined;
    if (step === undefined) {
      const power = 10 ** Math.floor(Math.log10(least));
      step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= least * 0.999999);
      if (step > 10 && step < 60) step = step > 30 ? 60 : step > 15 ? 30 : 15;
    }
    return { step, first: Math.ceil(from / step - 1e-9) * step };
  };

  // Text cut to a width, its end left out; `size` is the width of one character.
  tl.cut = function (context, text, width) {
    if (width < 14) return "";
    if (context.measureText(text).width <= width) return text;
    let low = 0;
    let high = Math.min(text.length, 400);
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
      else high = middle - 1;
    }
    return low >= 2 ? text.slice(0, low) + "…" : "";
  };
})(window.rlTimeline);
