// Lanes: intervals as bars, buckets as stacked columns, gauges as areas, markers as glyphs.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const FULL = 65535;
  const LEAST = 1.5; // pixels that the shortest interval is wide
  const FONT = "11px system-ui, sans-serif";

  // Draws the rows that are visible; the context is clipped to the region of the lanes.
  tl.drawLanes = function (chart, c) {
    c.font = FONT;
    c.textBaseline = "middle";
    chart.alternating = 0;
    for (const row of chart.visible) {
      const y = chart.rowTop(row);
      if (row.type === "group") tl.drawGroup(chart, c, row, y);
      else if (row.type === "strip") tl.drawStrip(chart, c, row, y);
      else drawLane(chart, c, row, y);
    }
  };

  function drawLane(chart, c, row, y) {
    const theme = chart.theme;
    const { number } = row.lane;
    if (chart.focusLane === number) {
      c.fillStyle = theme.raised;
      c.fillRect(chart.x0, y, chart.width - chart.x0, row.height);
    }
    c.fillStyle = theme.grid;
    c.fillRect(chart.x0, y + row.height - 1, chart.width - chart.x0, 1);
    if (chart.state.bubbles) tl.drawBubblesBehind(chart, c, row, y);
    for (const answer of chart.data.of("lane", number, chart.view)) {
      tl.within(chart, c, answer, () => drawAnswer(chart, c, row, y, answer));
    }
    drawPicked(chart, c, row, y);
  }

  // Limits drawing to the time that an answer is of, unless that is all of the view.
  tl.within = function (chart, c, answer, draw) {
    const from = Math.max(chart.x0, chart.x(answer.from_s));
    const to = Math.min(chart.width, chart.x(answer.to_s));
    if (from <= chart.x0 && to >= chart.width) return draw();
    if (to <= from) return undefined;
    c.save();
    c.beginPath();
    c.rect(from, 0, to - from, chart.height);
    c.clip();
    draw();
    c.restore();
    return undefined;
  };

  function drawAnswer(chart, c, row, y, answer) {
    const area = answer.area.get(row.lane.number);
    const { item_bounds: items } = answer.arrays;
    const labels = [];
    let current = -1;
    let below = null;
    const series = answer.lane.get(row.lane.number);
    for (const s of series) {
      if (items[s + 1] > items[s]) continue;
      const at = answer.arrays.series_row[s];
      if (at !== current) [current, below] = [at, new Float32Array(answer.frames.cells.count)];
      drawCells(chart, c, row, y, answer, s, below, area && at === 0 ? 0.25 : 1);
    }
    for (const s of series) {
      const faint = area && answer.arrays.series_row[s] === 0 ? 0.25 : 1;
      if (items[s + 1] > items[s]) drawItems(chart, c, row, y, answer, s, labels, faint);
    }
    if (area) drawArea(chart, c, row, y, answer, area);
    for (const label of labels) drawLabel(c, label);
    tl.drawMarkers(chart, c, row, y, answer);
  }

  function place(row, answer, s) {
    const tops = row.tops;
    return tops[Math.min(answer.arrays.series_row[s], tops.length - 1)] || [2, row.height - 4];
  }

  function alphaOf(chart, state) {
    return chart.found && !chart.found.has(state) ? 0.18 : 1;
  }

  // Buckets: one column each, its states stacked by how much of it they cover.
  function drawCells(chart, c, row, y, answer, s, below, faint) {
    const { cell_bounds, cell_bucket, cell_share, series_state } = answer.arrays;
    const { first_s, bucket_s } = answer.frames.cells;
    const [top, height] = place(row, answer, s);
    const state = chart.meta.states[series_state[s]];
    c.globalAlpha = faint * alphaOf(chart, series_state[s]);
    c.fillStyle = chart.fill(c, state);
    const bottom = y + top + height;
    const step = bucket_s * chart.scale;
    const origin = chart.x(first_s);
    const last = cell_bounds[s + 1];
    for (let i = cell_bounds[s]; i < last; i++) {
      const bucket = cell_bucket[i];
      const x = Math.round(origin + bucket * step);
      if (x > chart.width) break;
      let end = bucket + 1;
      const share = cell_share[i] / FULL;
      if (share === 1 && below[bucket] === 0) {
        // Full buckets in a row are one bar: there is no gap between them.
        while (i + 1 < last && cell_bucket[i + 1] === end && cell_share[i + 1] === FULL && !below[end]) {
          below[end] = 1;
          end++;
          i++;
        }
      }
      const right = Math.round(origin + end * step);
      const from = Math.min(1, below[bucket]) * height;
      const tall = Math.max(1, Math.min(height - from, share * height));
      below[bucket] += share;
      if (right < chart.x0) continue;
      c.fillRect(x, bottom - from - tall, Math.max(1, right - x), tall);
    }
    c.globalAlpha = 1;
  }

  function drawItems(chart, c, row, y, answer, s, labels, faint) {
    const { item_bounds, item_start, item_length, item_step, item_open, series_state } = answer.arrays;
    const [top, height] = place(row, answer, s);
    const state = chart.meta.states[series_state[s]];
    const alpha = faint * alphaOf(chart, series_state[s]);
    const isContainer = state.kind === "container";
    c.globalAlpha = alpha * (isContainer ? 0.28 : 1);
    c.fillStyle = chart.fill(c, state);
    const origin = chart.x(answer.from_s);
    let drawn = -1e9;
    for (let i = item_bounds[s]; i < item_bounds[s + 1]; i++) {
      let x = origin + item_start[i] * chart.scale;
      let width = item_length[i] * chart.scale;
      if (x + width < chart.x0 || x + Math.max(width, LEAST) <= drawn) continue;
      if (x > chart.width) break;
      width = Math.max(width, LEAST);
      const left = Math.max(x, chart.x0 - 4);
      width = Math.min(x + width, chart.width + 4) - left;
      // A hair's breadth between neighbours, where there is room for it.
      const rim = width > 4 ? 0.5 : 0;
      c.fillRect(left, y + top, width - rim, height);
      drawn = left + width - 0.5;
      if (item_open[i]) openEnd(chart, c, left, y + top, width, height, state);
      if (width > 26 && height >= 9 && faint === 1) {
        const step = item_step[i] !== tl.NULL ? item_step[i] : null;
        labels.push({ chart, state, step, left, y: y + top, width, height, alpha, open: item_open[i] });
      }
    }
    c.globalAlpha = 1;
  }

  // An interval without end: its right side is torn, and stays so until it ends.
  function openEnd(chart, c, left, top, width, height, state) {
    const x = left + width;
    const tooth = Math.min(5, width / 2);
    c.save();
    c.fillStyle = chart.theme.surface;
    c.globalAlpha = 1;
    c.beginPath();
    for (let at = 0; at < 3; at++) {
      c.moveTo(x + 1, top + (at * height) / 3);
      c.lineTo(x - tooth, top + ((at + 0.5) * height) / 3);
      c.lineTo(x + 1, top + ((at + 1) * height) / 3);
    }
    c.fill();
    c.strokeStyle = state.colour;
    c.setLineDash([3, 2]);
    c.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
    c.restore();
  }

  function drawLabel(c, { chart, state, step, left, y, width, height, alpha, open }) {
    const isContainer = state.kind === "container";
    const from = Math.max(left, chart.x0) + 4;
    const room = Math.min(left + width, chart.width) - from - 4;
    if (room < 14) return;
    let text = open ? `${state.label} (open)` : state.label;
    if (step !== null && (isContainer || c.measureText(`${text} · ${step}`).width < room)) {
      text = isContainer ? `${text} ${step}` : `${text} · ${step}`;
    }
    const fitting = tl.cut(c, text, room);
    if (!fitting) return;
    c.globalAlpha = alpha;
    if (state.pattern) {
      // A quiet ground keeps the text legible on its pattern.
      c.fillStyle = state.colour;
      c.fillRect(from - 2, y + 1, c.measureText(fitting).width + 4, height - 2);
    }
    c.fillStyle = isContainer ? chart.theme.text : chart.theme.on(state.colour);
    c.fillText(fitting, from, y + height / 2 + 0.5);
    c.globalAlpha = 1;
  }

  // How many requests a replica has, or a queue holds, as an area up to its capacity.
  function drawArea(chart, c, row, y, answer, area) {
    const { area_mean } = answer.arrays;
    const { first_s, bucket_s, count } = answer.frames.gauges;
    const [top, height] = row.tops[0];
    const values = area_mean.subarray(area.row * count, (area.row + 1) * count);
    const most = row.lane.capacity || chart.areaMost(row.lane.number, values);
    const bottom = y + top + height;
    const step = bucket_s * chart.scale;
    const origin = chart.x(first_s);
    const colour = row.lane.role === "queue" ? chart.theme.quiet : chart.generate;
    c.globalAlpha = chart.found ? 0.25 : row.lane.role === "queue" ? 0.55 : 0.95;
    c.fillStyle = colour;
    c.beginPath();
    for (let i = 0; i < count; i++) {
      const value = values[i];
      if (!(value > 0)) continue;
      const x = origin + i * step;
      if (x > chart.width || x + step < chart.x0) continue;
      const left = Math.round(x);
      const tall = Math.max(1, Math.min(1, value / most) * height);
      c.rect(left, bottom - tall, Math.max(1, Math.round(x + step) - left), tall);
    }
    c.fill();
    c.globalAlpha = 1;
    if (row.lane.capacity) overCapacity(chart, c, values, most, origin, step, y + top);
  }

  // More requests than slots: they queue in front of the engine.
  function overCapacity(chart, c, values, most, origin, step, y) {
    c.fillStyle = chart.theme.text;
    for (let i = 0; i < values.length; i++) {
      const x = origin + i * step;
      if (values[i] > most * 1.0001 && x < chart.width && x + step > chart.x0) {
        c.fillRect(Math.round(x), y, Math.max(1, Math.round(x + step) - Math.round(x)), 1.5);
      }
    }
  }

  function drawPicked(chart, c, row, y) {
    const picked = chart.picked;
    if (!picked || picked.lane_number !== row.lane.number) return;
    const end = picked.end_s === null ? chart.meta.duration_s : picked.end_s;
    const x = Math.max(chart.x0 - 3, chart.x(picked.start_s));
    const right = Math.min(chart.width + 3, Math.max(chart.x(end), chart.x(picked.start_s) + LEAST));
    const [top, height] = row.tops[Math.min(picked.row, row.tops.length - 1)] || [2, row.height - 4];
    c.strokeStyle = chart.theme.text;
    c.lineWidth = 2;
    c.strokeRect(x - 1, y + top - 1, right - x + 2, height + 2);
    c.lineWidth = 1;
  }
})(window.rlTimeline);
