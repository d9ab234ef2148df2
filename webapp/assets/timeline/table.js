// What the view holds as a table: for keyboards and screen readers, and to take along.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const el = (...parts) => tl.el(...parts);
  const COLUMNS = [
    ["lane", "lane", String],
    ["state", "state", String],
    ["intervals", "intervals", (value) => value.toLocaleString("en")],
    ["share", "share of the view", tl.percent],
    ["covered_s", "time", (value) => tl.duration(value)],
    ["longest_gap_s", "longest gap", (value) => tl.duration(value)],
  ];

  tl.Table = class {
    constructor(chart) {
      this.chart = chart;
      this.sorted = ["covered_s", -1];
      this.rows = [];
      this.element = el("section", { class: "tl-table", "aria-label": "What the view holds", hidden: "" });
    }

    async update() {
      const { chart } = this;
      this.element.hidden = !chart.state.table;
      if (!chart.state.table) {
        this.text = null;
        return;
      }
      const asked = this.asked();
      const text = tl.query(asked);
      if (text === this.text) return;
      this.text = text;
      try {
        const answer = await tl.ask("table", asked);
        if (this.text === text) this.show(answer.rows);
        if (this.wanted) this.element.scrollIntoView({ block: "nearest" });
        this.wanted = false;
      } catch (error) {
        chart.say(error.message);
      }
    }

    asked() {
      const { chart } = this;
      const lanes = chart.laneNumbers();
      return { run: chart.run, from: chart.view.from, to: chart.view.to, lanes: tl.ranges(lanes) };
    }

    show(rows) {
      this.rows = rows;
      const [key, order] = this.sorted;
      const sorted = [...rows].sort((a, b) => (a[key] < b[key] ? -order : a[key] > b[key] ? order : 0));
      const link = `/timeline/table?${tl.query({ ...this.asked(), format: "csv" })}`;
      this.element.replaceChildren(
        el("div", { class: "tl-table-head" },
          el("h2", { text: `${rows.length} states between ${this.span()}` }),
          el("a", { href: link, download: "timeline.csv", text: "Download as CSV" })),
        el("div", { class: "tl-table-scroll", tabindex: "0", role: "region", "aria-label": "Table of states" },
          el("table", {}, this.head(), el("tbody", {}, ...sorted.slice(0, 400).map((row) => this.line(row))))),
      );
    }

    span() {
      const { from, to } = this.chart.view;
      const fine = (to - from) / 1000;
      return `${tl.moment(Math.max(0, from), fine)} and ${tl.moment(to, fine)}`;
    }

    head() {
      const cells = COLUMNS.map(([key, title]) => {
        const [sorted, order] = this.sorted;
        const direction = sorted === key ? (order > 0 ? "ascending" : "descending") : "none";
        const mark = sorted === key ? (order > 0 ? " ↑" : " ↓") : "";
        return el("th", { scope: "col", "aria-sort": direction },
          el("button", { type: "button", text: title + mark, onclick: () => this.sort(key) }));
      });
      return el("thead", {}, el("tr", {}, ...cells));
    }

    sort(key) {
      this.sorted = [key, this.sorted[0] === key ? -this.sorted[1] : key === "lane" || key === "state" ? 1 : -1];
      this.show(this.rows);
    }

    line(row) {
      const cells = COLUMNS.slice(1).map(([key, , format]) => el("td", {}, el("bdi", { text: format(row[key]) })));
      const go = el("button", {
        type: "button", class: "tl-link", text: row.lane, title: "Show this lane",
        onclick: () => this.chart.focusOn(row.lane_number),
      });
      return el("tr", {}, el("th", { scope: "row" }, go), ...cells);
    }
  };
})(window.rlTimeline);
