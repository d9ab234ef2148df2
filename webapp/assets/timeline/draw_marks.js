// Point events on a lane: a glyph by kind, with its reason where there is room.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const FONT = "11px system-ui, sans-serif";

  const GLYPHS = {
    param_sync: (c, x, y) => c.fill(new Path2D(`M${x} ${y - 4}L${x + 4} ${y + 3}L${x - 4} ${y + 3}Z`)),
    mode_switch: (c, x, y) =>
      c.fill(new Path2D(`M${x} ${y - 4.5}L${x + 4.5} ${y}L${x} ${y + 4.5}L${x - 4.5} ${y}Z`)),
    pause: (c, x, y) => {
      c.fillRect(x - 3, y - 4, 2.2, 8);
      c.fillRect(x + 1, y - 4, 2.2, 8);
    },
    resume: (c, x, y) => c.fill(new Path2D(`M${x - 3} ${y - 4}L${x + 4} ${y}L${x - 3} ${y + 4}Z`)),
    abort: (c, x, y) => c.stroke(new Path2D(`M${x - 3} ${y - 3}l6 6m0 -6l-6 6`)),
    error: (c, x, y) => c.stroke(new Path2D(`M${x - 4} ${y - 4}l8 8m0 -8l-8 8`)),
  };

  tl.drawMarkers = function (chart, c, row, y, answer) {
    const found = answer.marks.get(row.lane.number);
    if (!found || row.type === "requests") return;
    const { marker_at, marker_kind, marker_reason } = answer.arrays;
    const at = y + row.height - 6;
    let free = -1e9;
    let last = -1e9;
    const places = found.map((i) => chart.x(answer.from_s + marker_at[i]));
    for (const [n, i] of found.entries()) {
      const x = places[n];
      if (x < chart.x0 - 5 || x > chart.width + 5) continue;
      const kind = chart.meta.marker_kinds[marker_kind[i]];
      if (x - last < 9 && kind !== "error") continue; // glyphs upon each other are none
      last = x;
      c.fillStyle = c.strokeStyle = kind === "error" || kind === "abort" ? chart.theme.alarm : chart.theme.text;
      c.lineWidth = 2;
      const glyph = GLYPHS[kind];
      if (glyph) glyph(c, x, at);
      else c.fillRect(x - 1, at - 4, 2, 8);
      c.lineWidth = 1;
      const next = places.find((other) => other - x >= 9) ?? chart.width;
      free = markerReason(chart, c, kind, marker_reason[i], x, at, free, next - x - 16);
    }
  };

  function markerReason(chart, c, kind, reason, x, y, free, room) {
    if (reason < 0 || kind === "param_sync" || x < free || room < 24) return free;
    const text = chart.meta.marker_reasons[reason];
    c.font = "10px system-ui, sans-serif";
    const fitting = tl.cut(c, kind === "mode_switch" ? `to ${text}` : text, Math.min(130, room));
    const width = c.measureText(fitting).width;
    if (fitting) {
      c.globalAlpha = 0.8;
      c.fillStyle = chart.theme.surface;
      c.fillRect(x + 5, y - 6, width + 4, 12);
      c.globalAlpha = 1;
      c.fillStyle = chart.theme.text;
      c.fillText(fitting, x + 7, y + 0.5);
    }
    c.font = FONT;
    return fitting ? x + 14 + width : free;
  }
})(window.rlTimeline);
