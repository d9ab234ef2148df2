// Asking the server. A view that was written to a file carries its answers, see `embedded`.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  tl.query = function (values) {
    const query = new URLSearchParams();
    for (const [key, value] of Object.entries(values)) {
      if (value !== null && value !== undefined && value !== "") query.set(key, value);
    }
    return query.toString();
  };

  // A JSON answer. Throws an Error with the server's sentence.
  tl.ask = async function (name, values, signal) {
    const response = await fetch(`/timeline/${name}?${tl.query(values)}`, { signal });
    const content = await response.json();
    if (response.status === 202) return { indexing: content.indexing };
    if (!response.ok) throw new Error(content.error || response.statusText);
    return content;
  };

  // A window, unpacked.
  tl.askWindow = async function (values, signal) {
    const response = await fetch(`/timeline/window?${tl.query(values)}`, { signal });
    if (response.status !== 200) {
      const content = await response.json();
      throw new Error(content.error || content.indexing || response.statusText);
    }
    const buffer = await response.arrayBuffer();
    const answer = tl.unpack(buffer);
    answer.bytes = buffer.byteLength;
    return answer;
  };

  // Names and frame of a run; waits while its index is built for the first time.
  tl.askMeta = async function (run, onWaiting) {
    for (;;) {
      const meta = await tl.ask("meta", { run });
      if (!meta.indexing) return meta;
      onWaiting(meta.indexing);
      await new Promise((resolve) => setTimeout(resolve, 700));
    }
  };

  // 0,1,2,5 -> "0-2,5"
  tl.ranges = function (numbers) {
    const sorted = [...new Set(numbers)].sort((a, b) => a - b);
    const parts = [];
    for (let i = 0; i < sorted.length; ) {
      let j = i;
      while (j + 1 < sorted.length && sorted[j + 1] === sorted[j] + 1) j++;
      parts.push(j > i ? `${sorted[i]}-${sorted[j]}` : `${sorted[i]}`);
      i = j + 1;
    }
    return parts.join(",");
  };
})(window.rlTimeline);
