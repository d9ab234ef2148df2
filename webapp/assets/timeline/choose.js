// Part of a chart: groups and lanes, what is looked at, what is searched, where to jump.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const NEXT = { open: "shut", shut: "open" };
  const NEXT_OF_MANY = { shut: "strip", strip: "open", open: "shut" };

  const LEAST = 1e-6; // seconds

  (tl.parts = tl.parts || []).push({
    toggle(key) {
      this.state[key] = !this.state[key];
      this.table.wanted = key === "table" && this.state.table;
      this.bar.update();
      this.place();
      this.wishAndDraw();
    },

    toggleGroup(group) {
      const mode = tl.modeOf(group, this.state, this.meta);
      this.setMode(group, (group.canStrip ? NEXT_OF_MANY : NEXT)[mode]);
    },

    setMode(group, mode) {
      for (const set of [this.state.shut, this.state.strip, this.state.wide]) set.delete(group.id);
      ({ shut: this.state.shut, strip: this.state.strip, open: this.state.wide })[mode].add(group.id);
      if (mode === "open" && !group.canStrip) this.state.wide.delete(group.id);
      this.arrange();
    },

    // The requests of a replica, one by one.
    toggleLane(lane) {
      const replica = lane.role === "requests" ? lane.of : lane.id;
      this.focusLane = lane.number;
      if (this.hasRequests.has(replica)) {
        if (!this.state.lane.delete(replica)) this.state.lane.add(replica);
      }
      this.arrange();
    },

    focusOn(number) {
      this.focusLane = number;
      this.scrollToLane(number);
      this.canvas.focus();
      this.wishAndDraw();
    },

    moveFocus(by) {
      const rows = this.layout.rows.filter((row) => row.type !== "strip");
      const numbers = rows.map((row) => (row.lane ? row.lane.number : row.group.id));
      const at = Math.max(-1, numbers.indexOf(this.focusLane));
      const row = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
      this.focusLane = row.lane ? row.lane.number : row.group.id;
      if (row.lane) this.scrollToLane(row.lane.number);
      else if (row.y < this.state.y) this.scrollTo(row.y);
      this.say(row.lane ? `${row.lane.name}${row.type === "requests" ? ", requests" : ""}` : `group ${row.group.title}, ${row.mode}`);
      this.wishAndDraw();
    },

    openFocus() {
      const group = this.groups.find((g) => g.id === this.focusLane);
      if (group) {
        this.toggleGroup(group);
        return;
      }
      const lane = this.meta.lanes[this.focusLane];
      if (!lane) return;
      if (this.hasRequests.has(lane.id)) this.toggleLane({ ...lane, number: this.focusLane });
      else this.ask({ lane: this.focusLane, t: (this.view.from + this.view.to) / 2 });
    },

    // -- details -------------------------------------------------------------------------

    pickAt(hit) {
      const given = { lane: hit.lane.number, row: hit.at, t: hit.t, tol: 2 / this.scale };
      if (hit.item) {
        // A little inside the interval, so that its neighbour is not meant.
        const { start, length } = hit.item;
        given.t = Math.min(Math.max(hit.t, start + length * 1e-3), start + length * 0.999);
        given.tol = hit.item.length * this.scale > 6 ? 0 : 2 / this.scale;
        given.state = hit.item.state;
      }
      this.focusLane = hit.lane.number;
      this.ask(given);
    },

    pickStrip(hit) {
      this.ask({ lane: hit.lane.number, t: hit.t, tol: 1 / this.scale });
    },

    async ask(given) {
      try {
        const detail = await tl.ask("detail", { run: this.run, ...given });
        this.state.pick = `${given.lane}:${given.row ?? ""}:${given.t}`;
        this.pick(detail);
      } catch (error) {
        this.say(error.message);
      }
    },

    pick(detail) {
      tl.showTooltip(this, null);
      this.picked = detail && detail.start_s !== undefined && detail.row !== undefined ? detail : null;
      if (detail) {
        tl.showDetail(this, detail);
        const what = detail.state ? detail.state.label : detail.kind;
        this.say(`${detail.lane}: ${what} ${detail.duration_s ? tl.duration(detail.duration_s) : ""}`);
      } else {
        this.state.pick = null;
        tl.hideDetail(this);
        this.canvas.focus({ preventScroll: true });
      }
      this.wishAndDraw();
    },

    restorePick() {
      const [lane, row, t] = this.state.pick.split(":");
      const given = { lane: Number(lane), t: Number(t), tol: 2 / this.scale };
      if (row !== "") given.row = Number(row);
      if (Number.isInteger(given.lane) && Number.isFinite(given.t)) {
        this.scrollToLane(given.lane);
        this.ask(given);
      }
    },

    // The previous or next interval of the lane.
    async step(direction) {
      const { picked } = this;
      const lane = picked ? picked.lane_number : this.focusLane;
      if (!Number.isInteger(lane)) return;
      const at = picked ? picked.start_s : (this.view.from + this.view.to) / 2;
      await this.goFound({ lane, row: picked ? picked.row : null, at, dir: direction });
    },

    // -- searching and jumping -----------------------------------------------------------

    setFind(text) {
      this.state.find = text.slice(0, 200);
      const wanted = text.trim().toLowerCase();
      const matching = this.meta.states.flatMap((s, i) => (s.label.toLowerCase().includes(wanted) ? [i] : []));
      this.found = wanted && matching.length ? new Set(matching) : null;
      this.say(wanted && !matching.length ? `nothing is called “${text.trim()}”` : "");
      this.foundAt = null;
      this.wishAndDraw();
    },

    async findNext(direction) {
      const text = this.state.find.trim();
      if (!text) {
        this.bar.search.focus();
        return;
      }
      const at = this.foundAt ?? (direction > 0 ? this.target.from : this.target.to);
      const found = await this.goFound({ activity: text, at, dir: direction });
      if (found && found.from_s !== null) this.foundAt = found.from_s;
    },

    async goFound(given) {
      try {
        const found = await tl.ask("find", { run: this.run, ...given });
        if (found.from_s === null) {
          this.say(`${found.text}: none ${given.dir < 0 ? "before" : "behind"}`);
          return found;
        }
        this.bring(found.from_s, found.to_s);
        this.reveal(found.lane);
        const inside = Math.min((found.to_s - found.from_s) / 2, 1e-4);
        await this.ask({ lane: found.lane, row: found.row, state: found.state, t: found.from_s + inside });
        if (found.total) this.say(`${found.text}: ${found.total.toLocaleString("en")} intervals`);
        return found;
      } catch (error) {
        this.say(error.message);
        return null;
      }
    },

    // Opens the group of a lane that is not drawn by itself.
    reveal(number) {
      const lane = this.meta.lanes[number];
      const group = this.groups.find((g) => g.lanes.some((l) => l.number === number));
      if (group && tl.modeOf(group, this.state, this.meta) === "shut") this.setMode(group, "open");
      if (lane.role === "requests" && !this.state.lane.has(lane.of)) this.state.lane.add(lane.of);
      this.arrange();
      this.scrollToLane(number);
    },

    // Shows a stretch: stays at the present zoom where that shows it well.
    bring(from, to) {
      const { target } = this;
      const span = target.to - target.from;
      const length = to - from;
      const isSeen = from >= target.from && to <= target.to && length > span * 0.01;
      if (isSeen) return;
      const wide = Math.min(span, Math.max(length * 12, LEAST));
      const room = Math.max(wide, length * 1.3);
      this.glide((from + to) / 2 - room / 2, (from + to) / 2 + room / 2);
    },

    async goTo(kind, number) {
      try {
        const found = await tl.ask("find", { run: this.run, [kind]: number });
        if (found.from_s === null) this.say(found.text);
        else {
          if (this.bar[kind]) this.bar[kind].value = number;
          this.zoomTo(found.from_s, found.to_s);
          this.say(`${found.text}: ${tl.duration(found.to_s - found.from_s)}`);
        }
      } catch (error) {
        this.say(error.message);
      }
    },

    // The step or version before or behind the one in the middle of the view.
    async jump(kind, by) {
      const range = this.meta[`${kind}s`];
      if (!range) return;
      const now = this.current(kind);
      const number = now === null ? range[by > 0 ? 0 : 1] : Math.max(range[0], Math.min(range[1], now + by));
      await this.goTo(kind, number);
    },

    current(kind) {
      const middle = (this.target.from + this.target.to) / 2;
      const isWhole = this.target.from <= 0 && this.target.to >= this.meta.duration_s;
      if (isWhole) return null;
      const typed = this.bar[kind] && this.bar[kind].value !== "" ? Number(this.bar[kind].value) : null;
      const answer = this.data.answers.find((a) => a.from_s <= middle && a.to_s >= middle);
      if (!answer) return typed;
      const starts = answer.arrays[`${kind}_start`];
      const numbers = answer.arrays[`${kind}_number`];
      let found = null;
      for (let i = 0; i < starts.length; i++) {
        if (answer.from_s + starts[i] <= middle) found = numbers[i];
      }
      return found === tl.NULL ? typed : found;
    },

    clearSelection() {
      this.state.sel = null;
      this.wishAndDraw();
    },

    clearAll() {
      this.state.sel = null;
      this.state.find = "";
      this.found = this.foundAt = null;
      this.pick(null);
      this.say("");
    },
  });
})(window.rlTimeline);
