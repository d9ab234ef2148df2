// A view in a file: what its scripts ask for first was asked for when the file was written.
(function () {
  const { address, answers } = window.rlinsightView;
  const pathOf = (url) => new URL(url, "http://view").pathname;

  function answerTo(url) {
    const path = url.replace(/^file:\/\/(\/[A-Za-z]:)?/, "");
    // A window's size may differ from the one assumed; the same view is answered all the same.
    const alike = Object.keys(answers).find((key) => pathOf(key) === pathOf(path));
    return answers[path] || (alike && answers[alike]);
  }

  window.fetch = async function (input) {
    const found = answerTo(typeof input === "string" ? input : input.url || String(input));
    if (!found) return new Response("this view is a file; open it with `rlinsight serve`", { status: 404 });
    const bytes = Uint8Array.from(atob(found[1]), (c) => c.charCodeAt(0));
    return new Response(bytes, { status: 200, headers: { "Content-Type": found[0] } });
  };

  window.rlinsightAddress = address;
})();
