"""Changes to labml's page, which is one minified script: each replaces text that occurs exactly as often as it says.

With them the page refreshes by itself. labml-app is pinned. With another version a text may be missing, and the server
refuses to start.
"""

SECONDS_BETWEEN = 6  # refreshes; the page keeps answers for 5 s

PATCHES: tuple[tuple[int, str, str], ...] = (
    (2, "this.remainingTime=120", f"this.remainingTime={SECONDS_BETWEEN}"),
    # A hidden tab asks nothing, and asks at once when it is shown again.
    (1, "0<this.remainingTime?", "document.hidden||0<this.remainingTime?"),
    # Timers continued after a stop during a refresh.
    (
        1,
        "this.handler&&this.handler(),this.isPaused||(this._stop(),",
        "this.handler&&this.handler(),this.isPaused||!this.isActive||(this._stop(),",
    ),
    # An empty list never started its timer.
    (
        1,
        "e||this.isEditMode?this.refresh.stop():this.refresh.start()}async renderList(){if(0<this.currentRunsList",
        "this.isEditMode?this.refresh.stop():this.refresh.start()}async renderList(){if(0<this.currentRunsList",
    ),
    # A refresh of the metrics view rebuilt its options, and lost what was typed there.
    (
        1,
        "try{await this.loader.load(!0),this.content.render()}catch(e){}",
        "try{await this.loader.load(!0),this.content.renderCharts()}catch(e){}",
    ),
    # Dead runs.
    (
        1,
        '(this.statusClass="text-secondary",this.statusText="unknown status")',
        '(this.statusClass="dead"===this.status.status?"text-danger":"text-secondary",this.statusText=this.status.status)',
    ),
    # The way back to Folio's pages, in place of a link to labml's site.
    (
        1,
        'icon:".fas.fa-book",text:"Documentation",link:"https://docs.labml.ai",target:"_blank"',
        'icon:".fas.fa-chart-line",text:"Folio",link:"/runs",target:"_blank"',
    ),
)


def patched(script: str) -> str:
    """labml's script with all changes. Raises ValueError if a text occurs more or less often."""
    for times, old, new in PATCHES:
        if script.count(old) != times:
            raise ValueError(f"labml-app's page has changed: it has {script.count(old)} times {old[:60]!r}")
        script = script.replace(old, new)
    return script
