// Gauges below the lanes, on the same time axis.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#8a5fbf"];
  const DASHES = [[], [6, 2], [2, 2], [8, 2, 2, 2]];

  tl.drawPanels = function (chart, c) {
    const answer = chart.panelAnswer();
    const { theme, x0, width } = chart;
    const { top, each, panels } = chart.regions.panels;
    c.fillStyle = theme.surface;
    c.fillRect(0, top, width, chart.regions.bottom - top);
    c.fillStyle = theme.line;
    c.fillRect(0, top, width, 1);
    if (!answer) return;
    panels.forEach((panel, i) => {
      const at = answer.panels.findIndex((other) => other.id === panel.id);
      const y = top + 1 + i * each;
      if (i) {
        c.fillStyle = theme.grid;
        c.fillRect(0, y - 0.5, width, 1);
      }
      if (at >= 0) drawPanel(chart, c, answer, at, y + 4, each - 8);
    });
    c.fillStyle = theme.line;
    c.fillRect(x0 - 1, top, 1, chart.regions.bottom - top);
  };

  // Lowest, highest and mean of line `line` of panel `at`.
  tl.panelLine = function (answer, at, line) {
    const { count } = answer.frames.gauges;
    let row = line;
    for (let i = 0; i < at; i++) row += answer.panels[i].lines.length;
    const values = answer.arrays.panel_values;
    const part = (k) => values.subarray((row * 3 + k) * count, (row * 3 + k + 1) * count);
    return { low: part(0), high: part(1), mean: part(2) };
  };

  function drawPanel(chart, c, answer, at, y, height) {
    const panel = answer.panels[at];
    const lines = panel.lines.map((line, i) => ({ ...line, ...tl.panelLine(answer, at, i) }));
    const most = niceTop(lines, panel.unit);
    const { x0, width } = chart;
    c.save();
    c.beginPath();
    c.rect(x0, y - 3, width - x0, height + 6);
    c.clip();
    let solid = 0;
    lines.forEach((line) => {
      const style = line.limit ? "limit" : solid++ % COLOURS.length;
      drawLine(chart, c, answer, line, style, y, height, most);
    });
    c.restore();
    names(chart, c, answer, panel, lines, y, height, most);
  }

  function niceTop(lines, unit) {
    let most = 0;
    for (const { high } of lines) for (const value of high) if (value > most) most = value;
    if (most === 0) return 1;
    if (unit === "ratio" && most > 0.25 && most <= 1) return 1;
    const power = 10 ** Math.floor(Math.log10(most));
    return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((k) => k * power).find((k) => k >= most * 0.9999);
  }

  function drawLine(chart, c, answer, line, style, y, height, most) {
    const { first_s, bucket_s, count } = answer.frames.gauges;
    const step = bucket_s * chart.scale;
    const origin = chart.x(first_s);
    const isLimit = style === "limit";
    const colour = isLimit ? chart.theme.alarm : COLOURS[style];
    const at = (value) => y + height - (value / most) * height;
    const first = Math.max(0, Math.floor((chart.x0 - origin) / step) - 1);
    const last = Math.min(count, Math.ceil((chart.width - origin) / step) + 1);
    if (!isLimit) {
      c.fillStyle = colour;
      c.globalAlpha = 0.22;
      for (let i = first; i < last; i++) {
        if (!(line.high[i] >= 0)) continue;
        const top = at(line.high[i]);
        c.fillRect(origin + i * step, top, step + 0.4, Math.max(1, at(line.low[i]) - top));
      }
      c.globalAlpha = 1;
    }
    c.strokeStyle = colour;
    c.setLineDash(isLimit ? [5, 4] : DASHES[style]);
    c.lineWidth = 1.4;
    c.beginPath();
    let isDown = false;
    for (let i = first; i < last; i++) {
      const value = line.mean[i];
      if (Number.isNaN(value)) isDown = false;
      else {
        const x = origin + (i + 0.5) * step;
        if (isDown) c.lineTo(x, at(value));
        else c.moveTo(x, at(value));
        isDown = true;
      }
    }
    c.stroke();
    c.setLineDash([]);
    c.lineWidth = 1;
  }

  function names(chart, c, answer, panel, lines, y, height, most) {
    const { theme, x0 } = chart;
    c.textBaseline = "middle";
    c.font = "600 11px system-ui, sans-serif";
    c.fillStyle = theme.text;
    c.fillText(tl.cut(c, panel.title, x0 - 70), 10, y + 5);
    c.font = "10px system-ui, sans-serif";
    c.fillStyle = theme.quiet;
    const top = tl.quantity(most, panel.unit);
    c.fillText(top, x0 - 8 - c.measureText(top).width, y + 5);
    c.fillText("0", x0 - 8 - c.measureText("0").width, y + height - 3);
    let solid = 0;
    lines.slice(0, 4).forEach((line, i) => {
      const colour = line.limit ? theme.alarm : COLOURS[solid++ % COLOURS.length];
      const row = y + 14.5 + i * 10;
      if (row > y + height - 2) return;
      c.fillStyle = colour;
      c.fillRect(10, row - 1, 8, 2.5);
      c.fillStyle = theme.quiet;
      c.fillText(tl.cut(c, line.limit ? "limit" : line.label, x0 - 60), 22, row + 0.5);
    });
  }

  // The values under the pointer, beside its line, each in the colour of its line.
  tl.drawPanelValues = function (chart, c) {
    const answer = chart.panelAnswer();
    const { pointer, x0, width } = chart;
    if (!answer || !pointer || pointer.x < x0 || chart.dragging === "pan") return;
    const { top, each, panels } = chart.regions.panels;
    c.font = "600 10.5px system-ui, sans-serif";
    c.textBaseline = "middle";
    panels.forEach((panel, i) => {
      const at = answer.panels.findIndex((other) => other.id === panel.id);
      if (at < 0) return;
      const texts = answer.panels[at].lines.map((line, n) => valueText(chart, answer, at, line, n, panel.unit));
      const widths = texts.map((text) => (text ? c.measureText(text).width + 10 : 0));
      const total = widths.reduce((sum, one) => sum + one, 0);
      if (!total) return;
      let x = pointer.x + 8 + total > width ? pointer.x - total - 4 : pointer.x + 8;
      const y = top + i * each + 11;
      c.fillStyle = chart.theme.surface;
      c.globalAlpha = 0.85;
      c.fillRect(x - 3, y - 7, total, 14);
      c.globalAlpha = 1;
      let solid = 0;
      answer.panels[at].lines.forEach((line, n) => {
        c.fillStyle = line.limit ? chart.theme.alarm : ink(chart, solid++);
        c.fillText(texts[n], x, y + 0.5);
        x += widths[n];
      });
    });
  };

  // Dark colours are raised on a dark ground, so that small text stays legible.
  function ink(chart, number) {
    const light = ["#62b0e8", "#ff9c5b", "#4fcfa5", "#b79be0"];
    return (chart.theme.dark ? light : COLOURS)[number % COLOURS.length];
  }

  function valueText(chart, answer, at, line, number, unit) {
    const { first_s, bucket_s, count } = answer.frames.gauges;
    const bucket = Math.floor((chart.time(chart.pointer.x) - first_s) / bucket_s);
    if (bucket < 0 || bucket >= count) return "";
    const value = tl.panelLine(answer, at, number).mean[bucket];
    return Number.isNaN(value) ? "" : tl.quantity(value, unit);
  }
})(window.rlTimeline);
