"""The pages, and what a page is.

A page is a pure function of a source and the query of its URL, so that it can be tested, and
rendered to a file, without a browser or a server:

    def page(run: Run, query: Query) -> Component         # a page about one run
    def page(store: Store, query: Query) -> Component     # a page about the whole folder

* One URL scheme: `/NAME?run=ID&key=value...`, nothing in the fragment, no hidden state: a copied
  link shows the same view. A page reads its own keys from `query`, ignores the others, and treats
  a value that it cannot use as absent. `run` is an id of the store, never a path. Several ids are
  joined by commas. Times in a URL are seconds since the first row of the run (`from=12.5&to=40`).
* `Store.run(id)` gives a `Run` (`webapp/store.py`): `run.trace` is what `rlinsight.open` returns,
  `run.report` its analysis, `run.live` whether it is still being written.
* A page draws; it computes nothing that an analyzer could. Colours come from `webapp/palette.py`.
  Strings of a trace are text: a Dash component's children and attributes are safe, plotly text,
  names and hover templates go through `webapp.text.plain`, AG Grid gets no HTML renderers.
* The shell (header, navigation, live mark, alarm) is around every page already. It renders a page
  anew when the run's trace has changed; a page with `refreshes=False` is left alone and follows
  the run by itself.
* A page whose script asks for data first may define `prefetch(run, query) -> list[str]`, the paths
  with queries of these requests: a view written to a file carries their answers.
* JSON endpoints: `webapp/timeline/routes.py: register(server, store)`; the token, the loopback
  check and the security headers are applied to every request of the server already.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Final

Query = Mapping[str, str]


@dataclass(frozen=True)
class Page:
    """One page: `/name`. `of_run` pages need `?run=ID`; `needs` are modules it cannot do without.

    `source` is the module with the function `page`.
    """

    name: str
    title: str
    icon: str
    source: str
    of_run: bool = True
    refreshes: bool = True
    needs: tuple[str, ...] = ()

    @cached_property
    def module(self) -> ModuleType | None:
        """The page's module, or None where a part that it shows is not installed."""
        for name in (*self.needs, self.source):
            try:
                module = importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name is None or not name.startswith(error.name):
                    raise
                return None
        return module

    @property
    def render(self) -> Callable[[Any, Query], Any]:
        """The page function."""
        if self.module is None:
            raise LookupError(f"page `{self.name}` is not available")
        function: Callable[[Any, Query], Any] = self.module.page
        return function


def _page(name: str, title: str, icon: str, **more: Any) -> Page:
    source = more.pop("source", f"rlinsight.webapp.pages.{name}")
    return Page(name, title, icon, source, **more)


#: In the order of the navigation.
PAGES: Final = (
    _page("runs", "Runs", "runs", of_run=False),
    _page("overview", "Overview", "overview"),
    _page(
        "timeline",
        "Timeline",
        "timeline",
        source="rlinsight.webapp.timeline.page",
        refreshes=False,
    ),
    _page("staleness", "Staleness", "staleness"),
    _page("lengths", "Lengths", "lengths"),
    _page("advisor", "Advisor", "advisor", needs=("rlinsight.analyzers.advise",)),
    _page("compare", "Compare", "compare", of_run=False),
)


def available() -> tuple[Page, ...]:
    """Return the pages that can be shown, in order."""
    return tuple(page for page in PAGES if page.module is not None)


def find(name: str) -> Page | None:
    """Return the page of a URL's first part (empty: the runs)."""
    wanted = name or "runs"
    return next((page for page in available() if page.name == wanted), None)
