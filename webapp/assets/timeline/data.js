// The answers at hand, and which to ask for next: one request at a time, the latest wish wins.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const MARGIN = 0.35; // of the view, asked for on each side of it
  const KEPT = 6;
  const COARSE = 1.35; // an answer is too coarse when its pixels are this much wider than ours

  tl.Data = class {
    constructor(run, onAnswer, onError) {
      Object.assign(this, { run, onAnswer, onError });
      this.answers = [];
      this.wish = null;
      this.busy = false;
      this.durations = [];
    }

    // Asks for what the wish needs and is not at hand: {from, to, duration, width, lanes, dense,
    // groups, gauges, stamp}.
    need(wish) {
      if (this.answers.some((answer) => suffices(answer, wish))) {
        this.wish = null;
        return;
      }
      this.wish = wish;
      if (!this.busy) this.next();
    }

    async next() {
      const wish = this.wish;
      this.wish = null;
      if (!wish || this.closed) return;
      this.busy = true;
      const asked = widened(wish);
      try {
        const began = performance.now();
        const answer = await tl.askWindow({
          run: this.run,
          from: asked.from,
          to: asked.to,
          px: asked.px,
          lanes: tl.ranges(wish.lanes),
          dense: tl.ranges(wish.dense),
          groups: wish.groups.join(","),
          gauges: wish.gauges ? "1" : null,
        });
        this.durations.push(performance.now() - began);
        this.add(prepared(answer, wish, asked));
      } catch (error) {
        if (!this.closed) this.onError(error);
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
      this.busy = false;
      if (this.wish) this.next();
    }

    add(answer) {
      const same = (other) => other.wish.stamp === answer.wish.stamp;
      this.answers = [answer, ...this.answers.filter((a) => same(a) || a === this.answers[0])];
      this.answers.length = Math.min(this.answers.length, KEPT);
      if (!this.closed) this.onAnswer(answer);
    }

    // Answers that have a lane and touch the view, best last; one alone where it covers the view.
    of(kind, key, view) {
      const having = this.answers.filter(
        (a) => a[kind].has(key) && a.from_s < view.to && a.to_s > view.from,
      );
      const whole = having.find((a) => covers(a, view));
      if (!whole) return having.reverse();
      const finer = having.slice(0, having.indexOf(whole)).filter((a) => a.scale < whole.scale);
      return finer.length && whole.scale > 2 * perPixel(view, whole.wish.width)
        ? [whole, ...finer.reverse()]
        : [whole];
    }
  };

  const perPixel = (view, width) => (view.to - view.from) / width;

  function covers(answer, view) {
    const slack = (view.to - view.from) * 1e-6;
    return (
      answer.from_s <= Math.max(0, view.from) + slack &&
      answer.to_s >= Math.min(answer.wish.duration, view.to) - slack
    );
  }

  function suffices(answer, wish) {
    return (
      answer.wish.stamp === wish.stamp &&
      covers(answer, wish) &&
      answer.scale <= COARSE * perPixel(wish, wish.width) &&
      wish.lanes.every((lane) => answer.lane.has(lane)) &&
      wish.dense.every((lane) => answer.strip.has(lane)) &&
      wish.groups.every((group) => answer.group.has(group)) &&
      (!wish.gauges || answer.panels)
    );
  }

  function widened(wish) {
    const span = wish.to - wish.from;
    const from = Math.max(Math.min(0, wish.from), wish.from - MARGIN * span);
    const to = Math.min(Math.max(wish.duration, wish.to), wish.to + MARGIN * span);
    return { from, to, px: Math.round((wish.width * (to - from)) / span) };
  }

  // Adds look-ups: lane -> its series, strip and group -> their rows.
  function prepared(answer, wish, asked) {
    answer.wish = wish;
    answer.scale = (asked.to - asked.from) / asked.px;
    answer.lane = new Map(answer.lanes.map((lane) => [lane, []]));
    const { series_lane: lanes } = answer.arrays;
    for (let i = 0; i < lanes.length; i++) answer.lane.get(lanes[i]).push(i);
    answer.strip = new Map(answer.dense.map((lane, i) => [lane, i]));
    answer.area = new Map(answer.areas.map((area, i) => [area.lane, { ...area, row: i }]));
    answer.group = new Map();
    let row = 0;
    for (const group of answer.groups) {
      answer.group.set(group.group, { ...group, row });
      row += group.states.length;
    }
    answer.marks = new Map();
    const { marker_lane: marked } = answer.arrays;
    for (let i = 0; i < marked.length; i++) {
      if (!answer.marks.has(marked[i])) answer.marks.set(marked[i], []);
      answer.marks.get(marked[i]).push(i);
    }
    return answer;
  }
})(window.rlTimeline);
