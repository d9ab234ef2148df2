// The view in the page's URL: a copied link shows the same.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const escaped = (name) => name.replaceAll("%", "%25").replaceAll(",", "%2C");
  const list = (text) => new Set((text || "").split(",").filter(Boolean).map(decodeSafely));

  function decodeSafely(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  }

  function number(text) {
    const value = Number.parseFloat(text);
    return Number.isFinite(value) ? value : null;
  }

  // `pick` is `lane:row:seconds` of what is selected, `sel` a measured stretch `from:to`.
  tl.readState = function (given) {
    return {
      from: number(given.from),
      to: number(given.to),
      shut: list(given.shut),
      strip: list(given.strip),
      wide: list(given.wide),
      lane: list(given.lane),
      pick: given.pick || null,
      sel: pair(given.sel),
      find: (given.find || "").slice(0, 200),
      bubbles: given.bubbles !== "0",
      panels: given.panels !== "0",
      table: given.table === "1",
      y: number(given.y) || 0,
    };
  };

  function pair(text) {
    const [from, to] = (text || "").split(":").map(number);
    return from !== null && to !== null && to !== undefined && to > from ? { from, to } : null;
  }

  // Seconds with no more digits than the window needs.
  function fine(seconds, span) {
    const digits = Math.min(9, Math.max(0, Math.ceil(4 - Math.log10(Math.max(span, 1e-9)))));
    return String(Number(seconds.toFixed(digits)));
  }

  tl.stateQuery = function (state, view, duration) {
    const span = view.to - view.from;
    const whole = view.from <= 0 && view.to >= duration;
    const joined = (set) => [...set].map(escaped).join(",") || null;
    return {
      from: whole ? null : fine(view.from, span),
      to: whole ? null : fine(view.to, span),
      shut: joined(state.shut),
      strip: joined(state.strip),
      wide: joined(state.wide),
      lane: joined(state.lane),
      pick: state.pick,
      sel: state.sel ? `${fine(state.sel.from, span)}:${fine(state.sel.to, span)}` : null,
      find: state.find || null,
      bubbles: state.bubbles ? null : "0",
      panels: state.panels ? null : "0",
      table: state.table ? "1" : null,
      y: state.y ? String(Math.round(state.y)) : null,
    };
  };

  tl.writeState = function (state, view, duration) {
    if (window.location.protocol === "file:") return; // a view in a file has no address to change
    const query = new URLSearchParams(window.location.search);
    for (const [key, value] of Object.entries(tl.stateQuery(state, view, duration))) {
      if (value === null) query.delete(key);
      else query.set(key, value);
    }
    const path = `${window.location.pathname}?${query}`;
    if (path !== window.location.pathname + window.location.search) {
      window.history.replaceState(window.history.state, "", path);
      window.rlinsight.moved();
    }
  };
})(window.rlTimeline);
