// What the grids use: numbers as rlinsight prints them everywhere, and links within the app.
(function () {
  const three = (value) => {
    if (value === 0 || !isFinite(value)) return String(value);
    const digits = 2 - Math.floor(Math.log10(Math.abs(value)));
    if (digits > 5) return value.toPrecision(3);
    return digits > 0 ? value.toFixed(digits) : value.toFixed(0);
  };
  const known = (show) => (value) => (value === null || value === undefined ? "–" : show(value));

  const functions = (window.dashAgGridFunctions = window.dashAgGridFunctions || {});
  Object.assign(functions, {
    rl_leave: () => false,
    rl_percent: known((v) => (v && Math.abs(v) < 0.001 ? (v * 100).toPrecision(2) : (v * 100).toFixed(1)) + " %"),
    rl_number: known(three),
    rl_count: known((v) => v.toLocaleString("en").replaceAll(",", "\u202f")),
    rl_seconds: known((v) => {
      if (v === 0) return "0 s";
      for (const [unit, scale] of [["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
        if (Math.abs(v) >= scale * (unit === "h" || unit === "min" ? 10 : 1)) return three(v / scale) + " " + unit;
      }
      return (v * 1e9).toFixed(0) + " ns";
    }),
  });

  const renderers = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});
  renderers.RunLink = function (props) {
    const href = props.data[props.colDef.field + "_href"];
    const text = props.value === null || props.value === undefined ? "–" : String(props.value);
    if (!href) return text;
    const follow = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      window.history.pushState({}, "", href);
      window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
      window.scrollTo(0, 0);
    };
    return window.React.createElement("a", { href, onClick: follow, title: text }, text);
  };
})();
