// Mouse, touchpad and keyboard.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const CLICK = 4; // pixels of movement that are still a click

  tl.listen = function (chart) {
    const { canvas } = chart;
    canvas.addEventListener("wheel", (event) => wheel(chart, event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => down(chart, event));
    canvas.addEventListener("pointermove", (event) => move(chart, event));
    canvas.addEventListener("pointerup", (event) => up(chart, event));
    canvas.addEventListener("pointercancel", () => stop(chart));
    canvas.addEventListener("pointerleave", () => {
      chart.pointer = null;
      tl.showTooltip(chart, null);
      chart.repoint();
    });
    canvas.addEventListener("dblclick", (event) => twice(chart, event));
    canvas.addEventListener("keydown", (event) => tl.key(chart, event));
  };

  function point(chart, event) {
    const box = chart.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  // Two fingers or a wheel scroll the lanes and pan; with Ctrl (or a pinch) they zoom.
  function wheel(chart, event) {
    const at = point(chart, event);
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    event.preventDefault();
    if (event.ctrlKey || event.metaKey || at.y < chart.lanesTop) {
      chart.zoom(Math.exp(Math.max(-1, Math.min(1, dy * (event.ctrlKey && Math.abs(dy) < 40 ? 0.012 : 0.004)))), at.x);
    } else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
      chart.pan((event.shiftKey && !dx ? dy : dx) / chart.scale);
    } else chart.scroll(dy);
  }

  function down(chart, event) {
    if (event.button !== 0 && event.button !== 1) return;
    const at = point(chart, event);
    const hit = tl.hit(chart, at.x, at.y);
    chart.canvas.setPointerCapture(event.pointerId);
    chart.canvas.focus({ preventScroll: true });
    const measures = event.shiftKey || hit.region === "ruler";
    const kind = hit.region === "minimap" ? "minimap" : measures && at.x >= chart.x0 ? "measure" : "pan";
    chart.press = { ...at, hit, kind, from: { ...chart.view }, y0: chart.state.y, moved: false };
    if (kind === "minimap") jumpInMinimap(chart, at.x);
  }

  function move(chart, event) {
    const at = point(chart, event);
    chart.pointer = at;
    const { press } = chart;
    if (press && (press.moved || Math.hypot(at.x - press.x, at.y - press.y) > CLICK)) {
      press.moved = true;
      chart.dragging = press.kind;
      drag(chart, press, at);
      tl.showTooltip(chart, null);
    } else if (!press) {
      const hit = tl.hit(chart, at.x, at.y);
      tl.showTooltip(chart, hit, at.x, at.y);
      chart.canvas.style.cursor = cursor(chart, hit, at);
    }
    chart.repoint();
  }

  function cursor(chart, hit, at) {
    if (hit.region === "minimap") return "pointer";
    if (hit.region === "ruler") return "text";
    if (hit.region === "group") return "pointer";
    if (hit.region === "names") return hit.row && chart.hasRequests.has(hit.row.lane && hit.row.lane.id) ? "pointer" : "default";
    return hit.item || hit.parts || hit.marker ? "pointer" : at.x > chart.x0 ? "grab" : "default";
  }

  function drag(chart, press, at) {
    if (press.kind === "minimap") jumpInMinimap(chart, at.x);
    else if (press.kind === "measure") {
      const [a, b] = [chart.time(press.x), chart.time(Math.max(chart.x0, at.x))].sort((x, y) => x - y);
      chart.state.sel = b > a ? { from: a, to: b } : null;
    } else {
      const shift = (press.x - at.x) / chart.scale;
      chart.setView(press.from.from + shift, press.from.to + shift);
      chart.scrollTo(press.y0 + (press.y - at.y));
      chart.canvas.style.cursor = "grabbing";
    }
  }

  function jumpInMinimap(chart, x) {
    const span = chart.view.to - chart.view.from;
    const t = ((x - chart.x0) / (chart.width - chart.x0)) * chart.meta.duration_s;
    chart.setView(t - span / 2, t + span / 2);
  }

  function up(chart, event) {
    const { press } = chart;
    stop(chart);
    if (!press || press.moved) {
      chart.settle();
      return;
    }
    const { hit } = press;
    if (hit.region === "group") chart.toggleGroup(hit.row.group);
    else if (hit.region === "names" && hit.row && hit.row.lane) chart.toggleLane(hit.row.lane);
    else if (hit.region === "lane") chart.pickAt(hit, point(chart, event));
    else if (hit.region === "strip") chart.pickStrip(hit);
    else if (press.kind === "measure") chart.clearSelection();
  }

  function stop(chart) {
    chart.press = null;
    chart.dragging = null;
    chart.redraw();
  }

  function twice(chart, event) {
    const at = point(chart, event);
    const hit = tl.hit(chart, at.x, at.y);
    if (hit.item) chart.zoomTo(hit.item.start, hit.item.start + hit.item.length);
    else if (hit.parts && hit.region === "lane") chart.zoom(0.25, at.x);
    else if (hit.region === "ruler" && chart.state.sel) chart.zoomTo(chart.state.sel.from, chart.state.sel.to);
  }

  // [key, what it does]; shown by `?`.
  tl.KEYS = [
    ["W / S", "zoom in, out"],
    ["A / D, ← / →", "pan"],
    ["↑ / ↓", "previous, next lane"],
    ["Enter", "details of the lane at the view's middle; open or close a group or replica"],
    ["Shift + ← / →", "previous, next interval of the lane"],
    ["F", "fit: the selection, else the whole run"],
    ["/", "search an activity; N and Shift + N: next, previous match"],
    ["[ / ]", "previous, next step"],
    [", / .", "previous, next parameter version"],
    ["B", "bubbles behind the lanes"],
    ["P", "gauges"],
    ["T", "table of the view"],
    ["drag, wheel, Ctrl + wheel", "pan, scroll, zoom"],
    ["Shift + drag, or drag on the ruler", "measure"],
    ["Esc", "clear the selection"],
  ];

  const ACTIONS = {
    w: (chart) => chart.zoom(0.7, chart.pointer ? chart.pointer.x : null),
    s: (chart) => chart.zoom(1 / 0.7, chart.pointer ? chart.pointer.x : null),
    a: (chart) => chart.panBy(-0.2),
    d: (chart) => chart.panBy(0.2),
    ArrowLeft: (chart, event) => (event.shiftKey ? chart.step(-1) : chart.panBy(-0.1)),
    ArrowRight: (chart, event) => (event.shiftKey ? chart.step(1) : chart.panBy(0.1)),
    ArrowUp: (chart) => chart.moveFocus(-1),
    ArrowDown: (chart) => chart.moveFocus(1),
    Enter: (chart) => chart.openFocus(),
    f: (chart) => chart.fit(),
    "/": (chart) => chart.bar.search.focus(),
    n: (chart, event) => chart.findNext(event.shiftKey ? -1 : 1),
    "[": (chart) => chart.jump("step", -1),
    "]": (chart) => chart.jump("step", 1),
    ",": (chart) => chart.jump("version", -1),
    ".": (chart) => chart.jump("version", 1),
    b: (chart) => chart.toggle("bubbles"),
    p: (chart) => chart.toggle("panels"),
    t: (chart) => chart.toggle("table"),
    "?": (chart) => chart.bar.help(),
    Escape: (chart) => chart.clearAll(),
  };

  tl.key = function (chart, event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = ACTIONS[event.key] || ACTIONS[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action(chart, event);
  };
})(window.rlTimeline);
