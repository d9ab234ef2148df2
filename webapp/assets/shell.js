// Controls of a page write their value into the query of the URL, and the page follows the URL.
window.rlinsight = window.rlinsight || {};

window.rlinsight.mergeQuery = function () {
  const context = window.dash_clientside.callback_context;
  const query = new URLSearchParams(window.location.search);
  const before = query.toString();
  for (const input of context.triggered || []) {
    const id = JSON.parse(input.prop_id.replace(/\.value$/, ""));
    const value = Array.isArray(input.value) ? input.value.join(",") : input.value;
    if (value === null || value === undefined || value === "") query.delete(id.key);
    else query.set(id.key, value);
  }
  const after = query.toString();
  return after === before ? window.dash_clientside.no_update : after && "?" + after;
};

// Whether everything on the page has been drawn, for whoever takes a picture of it.
window.rlinsight.isDrawn = function () {
  const all = (selector, inner) =>
    [...document.querySelectorAll(selector)].every((element) => element.querySelector(inner));
  const ready = [...document.querySelectorAll(".rl-timeline")].every((e) => e.dataset.ready);
  const tables = all("#page [id$=-grid]", ".ag-row") && all("#page .ag-root", ".ag-header-cell");
  return ready && tables && all("#page .figure", ".main-svg");
};

// The link to the comparison of the runs that are ticked in the list.
window.rlinsight.compareLink = function (rows) {
  const ids = (rows || []).map((row) => row.id);
  if (ids.length < 2) return ["/compare", "Select runs to compare", "button button-off"];
  return ["/compare?runs=" + ids.map(encodeURIComponent).join(","), "Compare " + ids.length + " runs", "button"];
};

// A knob that is dragged moves the address along at once, and asks for the prediction when it has
// rested for a moment; the page itself stays.
(function () {
  const REST_MS = 120;
  let timer = null;

  window.rlinsight.moveKnobs = function () {
    const query = new URLSearchParams(window.location.search);
    for (const input of window.dash_clientside.callback_context.triggered || []) {
      const id = JSON.parse(input.prop_id.replace(/\.value$/, ""));
      query.set(id.key, String(input.value));
      const stands = document.getElementById("value-" + id.key);
      if (stands) stands.textContent = String(input.value);
    }
    window.history.replaceState(window.history.state, "", "?" + query);
    window.rlinsight.moved();
    window.clearTimeout(timer);
    timer = window.setTimeout(
      () => window.dash_clientside.set_props("moved", { data: window.location.search }),
      REST_MS,
    );
    return window.dash_clientside.no_update;
  };
})();

// A view is shown anew when the stamp of what it shows has changed on the server. One request at
// a time, none while the page is hidden or a view is on its way.
(function () {
  const EVERY_MS = 2000;
  let shown = null;
  let asked = null; // the address that Dash knows of
  let address = null; // the same, or what became of it in place

  const current = () => window.location.pathname + window.location.search;

  window.rlinsight.follow = function (stamp) {
    const [of, mark] = stamp.split(" ");
    if (of !== asked) asked = address = of;
    shown = address + " " + mark;
  };

  // The address was changed in place; what is shown is that of the new one.
  window.rlinsight.moved = function () {
    address = current();
    if (shown) shown = address + " " + shown.split(" ")[1];
  };

  async function look() {
    if (document.hidden || !shown || shown.split(" ")[0] !== current()) return;
    const query = new URLSearchParams({
      path: window.location.pathname,
      search: window.location.search,
    });
    const answer = await fetch("/stamp?" + query);
    const stamp = answer.ok ? await answer.text() : shown;
    if (stamp !== shown && stamp.split(" ")[0] === shown.split(" ")[0]) {
      shown = null;
      window.dash_clientside.set_props("changed", { data: stamp + " " + window.location.search });
    }
  }

  async function poll() {
    // A server that is gone for a while is asked again.
    await look().catch(() => {});
    window.setTimeout(poll, EVERY_MS);
  }

  window.setTimeout(poll, EVERY_MS);
})();
