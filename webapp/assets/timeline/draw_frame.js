// Around the lanes: minimap, ruler, versions and steps above, names to the left, lines across.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const FONT = "11px system-ui, sans-serif";
  const BOLD = "600 11.5px system-ui, sans-serif";

  // The whole run, and where the view is in it.
  tl.drawMinimap = function (chart, c) {
    const { x0, width, theme, meta } = chart;
    const { top, height } = chart.regions.minimap;
    const { rows, first_s, bucket_s, count } = meta.minimap;
    const scale = (width - x0) / meta.duration_s;
    c.fillStyle = theme.raised;
    c.fillRect(x0, top, width - x0, height);
    const each = height / Math.max(1, rows.length);
    rows.forEach((row, i) => {
      const below = new Float32Array(count);
      row.states.forEach((number, s) => {
        const state = meta.states[number];
        if (state.kind === "container") return;
        c.fillStyle = state.colour;
        row.shares[s].forEach((share, b) => {
          if (!share) return;
          const tall = (share / 255) * (each - 1);
          const x = x0 + (first_s + b * bucket_s) * scale;
          c.fillRect(x, top + (i + 1) * each - 1 - below[b] - tall, bucket_s * scale + 0.6, tall);
          below[b] += tall;
        });
      });
      c.font = "10px system-ui, sans-serif";
      c.textBaseline = "middle";
      c.fillStyle = theme.quiet;
      const name = row.group.startsWith("devices/") ? `${row.group.slice(8)} pool` : row.group;
      c.fillText(tl.cut(c, name, x0 - 18), 10, top + (i + 0.5) * each);
    });
    drawViewport(chart, c, scale, top, height);
  };

  function drawViewport(chart, c, scale, top, height) {
    const { x0, width, theme, view } = chart;
    const from = Math.max(x0, x0 + view.from * scale);
    const to = Math.min(width, Math.max(from + 3, x0 + view.to * scale));
    c.fillStyle = theme.surface;
    c.globalAlpha = 0.62;
    c.fillRect(x0, top, from - x0, height);
    c.fillRect(to, top, width - to, height);
    c.globalAlpha = 1;
    c.strokeStyle = theme.accent;
    c.lineWidth = 1.5;
    c.strokeRect(from + 0.5, top + 0.75, Math.max(2, to - from - 1), height - 1.5);
    c.lineWidth = 1;
  }

  tl.drawRuler = function (chart, c) {
    const { x0, width, theme, view } = chart;
    const { top, height } = chart.regions.ruler;
    const { step, first } = tl.ticks(view.from, view.to, width - x0);
    c.font = FONT;
    c.textBaseline = "middle";
    c.fillStyle = theme.text;
    for (let t = first; t < view.to; t += step) {
      const x = Math.round(chart.x(t)) + 0.5;
      c.fillStyle = theme.grid;
      c.fillRect(x - 0.5, top + height, 1, chart.regions.bottom - top - height);
      c.fillStyle = theme.quiet;
      c.fillRect(x - 0.5, top + height - 5, 1, 5);
      const text = tl.moment(Math.abs(t) < step / 1e6 ? 0 : t, step);
      if (x + 4 + c.measureText(text).width < width) c.fillText(text, x + 4, top + height / 2);
    }
    c.fillStyle = theme.quiet;
    c.fillText("time", 10, top + height / 2);
  };

  // Parameter versions and training steps, each with its number.
  tl.drawLandmarks = function (chart, c) {
    const answers = chart.data.answers.filter((a) => a.from_s < chart.view.to && a.to_s > chart.view.from);
    const answer = answers[0];
    const { versions, steps } = chart.regions;
    c.fillStyle = chart.theme.quiet;
    c.font = FONT;
    c.textBaseline = "middle";
    if (chart.meta.versions) c.fillText("version", 10, versions.top + versions.height / 2);
    if (chart.meta.steps) c.fillText("step", 10, steps.top + steps.height / 2);
    if (!answer) return;
    const a = answer.arrays;
    const moments = (times) => Array.from(times, (t) => answer.from_s + t);
    if (chart.meta.versions) {
      const starts = moments(a.version_start);
      const ends = [...starts.slice(1), chart.meta.duration_s];
      drawSegments(chart, c, versions, a.version_number, starts, ends, "v");
    }
    if (chart.meta.steps) {
      drawSegments(chart, c, steps, a.step_number, moments(a.step_start), moments(a.step_end), "");
    }
  };

  function drawSegments(chart, c, region, numbers, starts, ends, prefix) {
    const { x0, width, theme } = chart;
    for (let i = 0; i < starts.length; i++) {
      const from = Math.max(x0, chart.x(starts[i]));
      const to = Math.min(width, chart.x(ends[i]));
      if (to <= x0 || from >= width) continue;
      const odd = ((numbers[i] % 2) + 2) % 2 === 1;
      c.fillStyle = odd ? theme.raised : theme.line;
      c.fillRect(from, region.top + 1, Math.max(1, to - from - 1), region.height - 2);
      const text = numbers[i] === tl.NULL ? "" : `${prefix}${numbers[i]}`;
      if (text && to - from > c.measureText(text).width + 6) {
        c.fillStyle = theme.text;
        c.fillText(text, from + 4, region.top + region.height / 2 + 0.5);
      }
    }
  }

  // Over the lanes: where a version begins, and how long validation ran.
  tl.drawBands = function (chart, c) {
    const { theme, x0, width } = chart;
    const answer = chart.data.answers.find((a) => a.from_s < chart.view.to && a.to_s > chart.view.from);
    if (!answer) return;
    const { band_start, band_end, version_start } = answer.arrays;
    const top = chart.lanesTop;
    const height = chart.regions.bottom - top;
    for (let i = 0; i < band_start.length; i++) {
      const from = Math.max(x0, chart.x(answer.from_s + band_start[i]));
      const to = Math.min(width, chart.x(answer.from_s + band_end[i]));
      if (to <= from) continue;
      c.fillStyle = chart.validation;
      c.globalAlpha = 0.13;
      c.fillRect(from, top, Math.max(1, to - from), height);
      c.globalAlpha = 1;
      c.fillRect(from, chart.regions.steps.top, Math.max(2, to - from), 3);
    }
    c.fillStyle = theme.accent;
    let last = -1e9;
    for (let i = 0; i < version_start.length; i++) {
      const x = Math.round(chart.x(answer.from_s + version_start[i]));
      if (x <= x0 || x > width) continue;
      // Close together they would hide the lanes; then they fade out.
      c.globalAlpha = x - last > 28 ? 0.55 : x - last > 10 ? 0.22 : 0;
      last = x;
      c.fillRect(x, chart.regions.versions.top, 1, chart.regions.bottom - chart.regions.versions.top);
    }
    c.globalAlpha = 1;
  };

  // The validation's name, where its band has room for it.
  tl.drawBandNames = function (chart, c) {
    const answer = chart.data.answers.find((a) => a.from_s < chart.view.to && a.to_s > chart.view.from);
    if (!answer) return;
    const { band_start, band_end } = answer.arrays;
    c.font = "600 10px system-ui, sans-serif";
    c.textBaseline = "middle";
    for (let i = 0; i < band_start.length; i++) {
      const from = Math.max(chart.x0, chart.x(answer.from_s + band_start[i]));
      const to = Math.min(chart.width, chart.x(answer.from_s + band_end[i]));
      const text = "validation";
      const room = c.measureText(text).width;
      if (to - from < room + 10) continue;
      const x = (from + to - room) / 2;
      c.fillStyle = chart.validation;
      c.fillRect(x - 4, chart.lanesTop, room + 8, 13);
      c.fillStyle = chart.theme.on(chart.validation);
      c.fillText(text, x, chart.lanesTop + 7);
    }
  };

  // Names stay where they are while time moves.
  tl.drawNames = function (chart, c) {
    const { theme, x0 } = chart;
    for (const row of chart.visible) {
      const y = chart.rowTop(row);
      c.textBaseline = "middle";
      if (row.type === "group") groupName(chart, c, row, y);
      else if (row.type === "strip") {
        c.font = "10px system-ui, sans-serif";
        c.fillStyle = theme.quiet;
        if (row.height > 14) c.fillText(`${row.lanes.length} lanes`, 26, Math.max(y + 8, chart.lanesTop + 8));
      } else laneName(chart, c, row, y);
    }
    c.fillStyle = theme.line;
    c.fillRect(x0 - 1, chart.regions.minimap.top, 1, chart.regions.bottom - chart.regions.minimap.top);
  };

  function groupName(chart, c, row, y) {
    const { theme, x0 } = chart;
    const middle = y + (row.mode === "shut" ? 13 : row.height / 2);
    chevron(c, 10, middle, row.mode, theme.quiet);
    c.font = BOLD;
    c.fillStyle = theme.text;
    const room = row.mode === "shut" ? x0 - 32 : chart.width - 60;
    const title = tl.cut(c, row.group.title, room);
    c.fillText(title, 24, middle + 0.5);
    c.font = "10.5px system-ui, sans-serif";
    c.fillStyle = theme.quiet;
    const count = `${row.group.count} ${row.group.count === 1 ? "lane" : "lanes"}`;
    if (row.mode === "shut") c.fillText(tl.cut(c, `mean of ${count}`, x0 - 32), 24, middle + 14);
    else if (row.group.count > 1) {
      c.font = BOLD;
      const after = 24 + c.measureText(title).width + 8;
      c.font = "10.5px system-ui, sans-serif";
      c.fillText(tl.cut(c, count, chart.width - after), after, middle + 0.5);
    }
  }

  function chevron(c, x, y, mode, colour) {
    c.strokeStyle = colour;
    c.lineWidth = 1.6;
    c.beginPath();
    if (mode === "shut") c.stroke(new Path2D(`M${x} ${y - 4}l4 4l-4 4`));
    else if (mode === "strip") c.stroke(new Path2D(`M${x - 1} ${y - 3}h7M${x - 1} ${y}h7M${x - 1} ${y + 3}h7`));
    else c.stroke(new Path2D(`M${x - 2} ${y - 2}l4 4l4 -4`));
    c.lineWidth = 1;
  }

  function laneName(chart, c, row, y) {
    const { theme, x0 } = chart;
    const { lane } = row;
    c.font = FONT;
    const middle = y + (row.tops.length && row.type === "lane" ? row.tops[0][0] + row.tops[0][1] / 2 : 9);
    const canOpen = lane.role === "replica" && chart.hasRequests.has(lane.id);
    if (canOpen) chevron(c, 12, middle, chart.state.lane.has(lane.id) ? "open" : "shut", theme.quiet);
    if (chart.focusLane === lane.number) {
      c.fillStyle = theme.accent;
      c.fillRect(0, y, 3, row.height - 1);
    }
    c.fillStyle = row.type === "requests" ? theme.quiet : theme.text;
    const text = row.type === "requests" ? "requests, a row per slot" : lane.name;
    const right = row.type === "lane" && lane.area && lane.capacity ? `${lane.capacity} slots` : "";
    c.font = "10px system-ui, sans-serif";
    const beside = right ? c.measureText(right).width + 8 : 0;
    if (right) {
      c.fillStyle = theme.quiet;
      c.fillText(right, x0 - beside - 2, middle);
    }
    c.font = FONT;
    c.fillStyle = row.type === "requests" ? theme.quiet : theme.text;
    c.fillText(tl.cut(c, text, x0 - 34 - beside), 26, middle);
  }

  // The line under the pointer, with the time of the run and since the left edge.
  tl.drawCrosshair = function (chart, c) {
    const { theme, pointer } = chart;
    if (chart.state.sel) drawSelection(chart, c, chart.state.sel);
    if (!pointer || pointer.x < chart.x0 || chart.dragging === "pan") return;
    const t = chart.time(pointer.x);
    c.fillStyle = theme.text;
    c.globalAlpha = 0.35;
    c.fillRect(Math.round(pointer.x), chart.regions.ruler.top, 1, chart.regions.bottom - chart.regions.ruler.top);
    c.globalAlpha = 1;
    const fine = (chart.view.to - chart.view.from) / 2000;
    const text = `${tl.moment(t, fine)}   +${tl.duration(t - chart.view.from)}`;
    badge(chart, c, text, pointer.x, chart.regions.ruler.top + 1, theme.text, theme.surface);
  };

  function badge(chart, c, text, x, y, ground, ink) {
    c.font = FONT;
    c.textBaseline = "middle";
    const width = c.measureText(text).width + 12;
    const left = Math.max(chart.x0, Math.min(chart.width - width, x - width / 2));
    c.fillStyle = ground;
    c.beginPath();
    c.roundRect(left, y, width, 18, 4);
    c.fill();
    c.fillStyle = ink;
    c.fillText(text, left + 6, y + 9.5);
  }

  function drawSelection(chart, c, { from, to }) {
    const { theme } = chart;
    const left = Math.max(chart.x0, chart.x(from));
    const right = Math.min(chart.width, chart.x(to));
    if (right < chart.x0 || left > chart.width) return;
    c.fillStyle = theme.accent;
    c.globalAlpha = 0.13;
    c.fillRect(left, chart.regions.ruler.top, right - left, chart.regions.bottom - chart.regions.ruler.top);
    c.globalAlpha = 1;
    for (const x of [left, right]) {
      c.fillRect(Math.round(x), chart.regions.ruler.top, 1, chart.regions.bottom - chart.regions.ruler.top);
    }
    badge(chart, c, tl.duration(to - from, 4), (left + right) / 2, chart.regions.ruler.top + 1, theme.accent, theme.surface);
  }
})(window.rlTimeline);
