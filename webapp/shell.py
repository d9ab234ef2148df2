"""What surrounds every page: header, navigation, the state of the run, its alarm."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from dataclasses import dataclass
from typing import Any, Final

import dash_mantine_components as dmc
from dash import dcc, html

from rlinsight.errors import RlinsightError
from rlinsight.webapp import components, pages, urls
from rlinsight.webapp.state import LABELS
from rlinsight.webapp.store import Run, Store, UnknownRunError

_LOG: Final = logging.getLogger(__name__)

#: A larger trace is analysed only when a page cannot do without: it takes seconds and gigabytes.
_ANALYSED_BYTES: Final = 64 << 20

_THEME: Final = {
    "fontFamily": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
    "primaryColor": "blue",
    "defaultRadius": "md",
    "headings": {"fontWeight": "600"},
}


@dataclass(frozen=True)
class View:
    """One page with what surrounds it."""

    title: str
    navigation: list[Any]
    run_bar: list[Any]
    banner: list[Any]
    body: Any


def layout(made: View | None = None) -> Any:
    """Return the shell around a view, or around an empty page."""
    shown = made or View("", [], [], [], None)
    return dmc.MantineProvider(
        id="theme",
        defaultColorScheme="auto",
        theme=_THEME,
        children=[
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="changed", data=""),
            dcc.Store(id="shown", data=""),
            dcc.Store(id="titled", data=""),
            html.A("Skip to the page", href="#page", className="skip-link"),
            dmc.AppShell(
                [
                    dmc.AppShellHeader(_header(shown)),
                    dmc.AppShellNavbar(
                        html.Nav(shown.navigation, id="navigation", **{"aria-label": "Pages"}),
                        p="sm",
                    ),
                    dmc.AppShellMain(
                        [
                            html.Div(shown.banner, id="banner", role="status"),
                            html.Div(shown.body, id="page", tabIndex=-1),
                        ]
                    ),
                ],
                header={"height": 56},
                navbar={"width": 190, "breakpoint": "xs"},
                padding="lg",
            ),
        ],
    )


def _header(shown: View) -> Any:
    return dmc.Group(
        [
            dcc.Link(
                [html.Span(className="logo"), html.Span("rlinsight")], href="/", className="brand"
            ),
            html.Div(shown.run_bar, id="run-bar", className="run-bar"),
            dmc.ColorSchemeToggle(
                lightIcon=html.Span(className="icon icon-sun"),
                darkIcon=html.Span(className="icon icon-moon"),
                variant="subtle",
                color="gray",
                size="lg",
                **{"aria-label": "Switch between light and dark"},
            ),
        ],
        h="100%",
        px="md",
        justify="space-between",
        wrap="nowrap",
    )


def stamp(store: Store, path: str, query: pages.Query, *, budget_s: float = 0) -> str:
    """Return what changes whenever the view would look different.

    Of a list of runs that is the rows read so far; `budget_s` seconds may go into reading those
    that have changed.
    """
    page = pages.find(page_name(path))
    if page is None or not page.of_run:
        rows = store.summaries(budget_s)
        listed = repr((sorted(store.found()), rows))
        return hashlib.sha256(listed.encode("utf-8", "replace")).hexdigest()[:16]
    try:
        run = store.run(query.get("run", ""))
    except UnknownRunError:
        return "unknown"
    known = page.refreshes or run.known_report is not None
    return f"{run.stamp}.{run.state}.{known}"


def page_name(path: str) -> str:
    """Return the first part of a path."""
    return path.strip("/").split("/")[0]


def view(store: Store, path: str, query: pages.Query) -> View:
    """Return the page at `path` with `query`; what cannot be shown says why."""
    name = page_name(path)
    page = pages.find(name)
    if page is None:
        return _message(store, query, "", "There is no such page", f"`/{name[:80]}`")
    if not page.of_run:
        body = page.render(store, query)
        return View(page.title, _navigation(page.name, query), [], [], body)
    try:
        run = store.run(query.get("run", ""))
    except UnknownRunError as error:
        why = f"There is {error}." if query.get("run") else "This page is about one run."
        return _message(store, query, page.name, "Choose a run", why)
    return _run_view(page, run, query)


def _run_view(page: pages.Page, run: Run, query: pages.Query) -> View:
    try:
        body = page.render(run, query)
    except RlinsightError as error:
        body = components.message("This page cannot be shown", str(error))
    except Exception as error:
        # A defect of one page must not leave the reader without the others, nor without a word.
        _LOG.exception("page %s of run %s", page.name, run.id)
        said = f"{type(error).__name__}: {error}"
        body = components.message("This page cannot be shown, by a defect of rlinsight", said)
    if not page.refreshes and run.known_report is None and run.stamp.size <= _ANALYSED_BYTES:
        # The page shows itself without the analysis; its alarm comes with a later tick.
        threading.Thread(target=_analyse, args=(run,), daemon=True).start()
    report = run.known_report
    return View(
        title=f"{page.title} · {run.name}",
        navigation=_navigation(page.name, query),
        run_bar=_run_bar(run),
        banner=[] if report is None or report.verdict.alarm is None else [components.alarm(run)],
        body=body,
    )


def _analyse(run: Run) -> None:
    with contextlib.suppress(RlinsightError):
        _ = run.report


def _message(store: Store, query: pages.Query, name: str, title: str, text: str) -> View:
    choices = [
        html.Li(dcc.Link(found.name, href=urls.link(f"/{name or 'overview'}", run=found.id)))
        for found in store.found().values()
    ]
    body = components.message(title, text, html.Ul(choices))
    return View(title, _navigation(name, query), [], [], body)


def _navigation(current: str, query: pages.Query) -> list[Any]:
    run = query.get("run") or None
    return [
        dmc.NavLink(
            label=page.title,
            leftSection=html.Span(className=f"icon icon-{page.icon}"),
            href=_target(page, query),
            active="exact" if page.name == current else None,
            className="needs-run" if page.of_run and run is None else "",
            **({"aria-current": "page"} if page.name == current else {}),
        )
        for page in pages.available()
    ]


def _target(page: pages.Page, query: pages.Query) -> str:
    return urls.link(f"/{page.name}", run=query.get("run"), runs=query.get("runs"))


def _run_bar(run: Run) -> list[Any]:
    state = run.state
    mode = None if state == "broken" else run.trace.mode
    return [
        html.Span(run.name, className="run-name", title=run.name),
        *([html.Span(mode, className="run-mode")] if mode else []),
        state_mark(run),
    ]


def state_mark(run: Run) -> Any:
    """Return the mark that says whether the run goes on; readable without colour."""
    report = run.known_report
    stalled = run.live and report is not None and report.verdict.alarm is not None
    label = "Live, standing still" if stalled else LABELS[run.state]
    return html.Span(
        [html.Span(className="dot"), label],
        className=f"state state-{'stalled' if stalled else run.state}",
    )
