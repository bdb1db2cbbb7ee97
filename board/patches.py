"""Changes to labml's page, which is one minified script: each replaces text that occurs exactly once.

labml-app is pinned. With another version a text may be missing, and the server refuses to start.
"""

import json

# Okabe and Ito: distinct for color-blind readers. A run and its machine have a light and a dark shade.
COLORS = json.dumps(
    {
        "loss.train": "#E69F00",
        "loss.valid": "#0072B2",
        "hardware.cpu": "#56B4E9",
        "hardware.cpu_of_run": "#0072B2",
        "hardware.memory": "#E69F00",
        "hardware.memory_of_run": "#D55E00",
        "hardware.gpu": "#009E73",
        "hardware.gpu_memory": "#CC79A7",
    }
)
REFERENCE = "/^reference\\./"  # the names of the constant series for reference losses

# The title of the vertical axis of a chart with the given names.
TITLES = (
    'e=>e.length?e.every(e=>/^(loss|reference)\\./.test(e))?"loss in nats per masked character":'
    'e.every(e=>/^hardware\\./.test(e))?"used, in percent":"":""'
)

PATCHES: tuple[tuple[str, str], ...] = (
    # A forced refresh within 5 s of the last one was answered from the page's cache.
    ("function p(e){return 5e3<(new Date).getTime()-e}", "function p(e){return!0}"),
    # Timers continued after a stop during a refresh; an empty list and a hidden list never stopped or started.
    (
        "this.handler&&this.handler(),this.isPaused||(this._stop(),",
        "this.handler&&this.handler(),this.isPaused||!this.isActive||(this._stop(),",
    ),
    (
        "this.procTimerUpdate=async()=>{0<this.remainingTime?",
        "this.procTimerUpdate=async()=>{document.hidden&&0>=this.remainingTime?this.remainingTime=1:0<this.remainingTime?",
    ),
    (
        "e||this.isEditMode?this.refresh.stop():this.refresh.start()}async renderList(){if(0<this.currentRunsList",
        "this.isEditMode?this.refresh.stop():this.refresh.start()}async renderList(){if(0<this.currentRunsList",
    ),
    # A refresh of the metrics view rebuilt its options, and lost what was typed there.
    (
        "try{await this.loader.load(!0),this.content.render()}catch(e){}",
        "try{await this.loader.load(!0),this.content.renderCharts()}catch(e){}",
    ),
    # A resized window kept its old cards and refreshed them too. A new chart, that of the hardware, needed a reload.
    (
        "renderCards(){(0,n.Weya)(this.cardContainer,i=>{let e=",
        "renderCards(){this.cards=[],this.nCharts=this.customMetrics?this.customMetrics.getMetrics().length:0;"
        "(0,n.Weya)(this.cardContainer,i=>{let e=",
    ),
    (
        "this.lastUpdated=e,await this.runHeaderCard.refresh(this.lastUpdated).then()}}onVisibilityChange",
        "this.customMetrics&&this.customMetrics.getMetrics().length!==this.nCharts&&"
        '(this.cardContainer.innerHTML="",this.renderCards()),'
        "this.lastUpdated=e,await this.runHeaderCard.refresh(this.lastUpdated).then()}}onVisibilityChange",
    ),
    # Dead runs.
    (
        '(this.statusClass="text-secondary",this.statusText="unknown status")',
        '(this.statusClass="dead"===this.status.status?"text-danger":"text-secondary",this.statusText=this.status.status)',
    ),
    # "Default configurations" was shown for every run. Overridden keys come first.
    (
        "e.isSummary&&(this.configs=this.configs.filter(e=>e.isSelected),0==this.configs.length&&e.isSummary&&"
        "(this.configs=this.configs.filter(",
        "e.isSummary&&(this.configs.some(e=>e.isSelected)?this.configs=this.configs.filter(e=>e.isSelected):"
        "(this.configs=this.configs.filter(",
    ),
    (
        "this.configs.sort((e,t)=>e.key<t.key?-1:e.key>t.key?1:0),e.isSummary",
        "this.configs.sort((e,t)=>(!!t.isExplicitlySpecified-!!e.isExplicitlySpecified)||"
        "(e.key<t.key?-1:e.key>t.key?1:0)),e.isSummary",
    ),
    # Charts: ticks such as 2k in place of 2.00k, no fills, fixed colors of the losses, axis titles, reference losses.
    ('e.specifier:".2s"', 'e.specifier:"~s"'),
    ('this.specifier=void 0!==e.specifier?e.specifier:"",', 'this.specifier=void 0!==e.specifier?e.specifier:"~r",'),
    ("this.currentSeries.length<3&&0==this.baseSeries.length&&", "!1&&"),
    (
        "getColor(e){return this.colors[e]}",
        f'getColor(e,t){{let c={COLORS};return Object.hasOwn(c,t)?c[t]:{REFERENCE}.test(t)?"#888":this.colors[e]}}',
    ),
    (
        "this.chartColors.getColor(this.uniqueItems.get(t.name))",
        "this.chartColors.getColor(this.uniqueItems.get(t.name),t.name)",
    ),
    (
        "new n.LinePlot({series:e.trimmedSeries,xScale:this.xScale,yScale:this.yScale,"
        "color:this.chartColors.getColor(this.uniqueItems.get(e.name))",
        "new n.LinePlot({series:e.trimmedSeries,xScale:this.xScale,yScale:this.yScale,"
        "color:this.chartColors.getColor(this.uniqueItems.get(e.name),e.name)",
    ),
    (
        "new r.RightAxis({chartId:this.chartId,scale:this.yScale}).render(e)})})})}),this.isCursorMoveOpt",
        "new r.RightAxis({chartId:this.chartId,scale:this.yScale}).render(e)}),"
        'e("text",".axis-title",{transform:`translate(${this.margin+this.chartWidth/2}, '
        '${2*this.margin+this.chartHeight+36})`},"step"),'
        'e("text",".axis-title",{transform:`translate(${this.margin}, 12)`},'
        f"({TITLES})(this.currentSeries.map(e=>e.name)))"
        "})})}),this.isCursorMoveOpt",
    ),
    (
        '".text-center.selected-step",""),this.svgElem=e("svg","#chart",{height:10+',
        '".text-center.selected-step",""),this.svgElem=e("svg","#chart",{height:24+',
    ),
    (
        "this.linePlots.push(s),s.render(i)}),this.baseSeries.map(",
        f'this.linePlots.push(s),s.render(i),{REFERENCE}.test(e.name)&&i("text",".reference",'
        "{transform:`translate(${this.chartWidth-8}, ${this.yScale(e.series[0].value)-4})`,"
        '"text-anchor":"end"},e.name.slice(10)+" "+e.series[0].value.toFixed(3))}),this.baseSeries.map(',
    ),
    ('"stroke-dasharray":this.isBase?"3 1":""', '"stroke-dasharray":this.isBase?"3 1":"#888"===this.color?"6 4":""'),
    # Buttons that do nothing here, the comparison of two runs, and links to labml's site.
    ("renderProcess(){null!=this.run&&(", "renderProcess(){null!=this.run&&this.run.session_id&&("),
    ("let e=this.isRank?[g.default]:[g.default,f.default];", "let e=[g.default];"),
    (
        'icon:".fas.fa-book",text:"Documentation",link:"https://docs.labml.ai",target:"_blank"',
        'icon:".fas.fa-chart-line",text:"Compare",link:"/compare",target:"_blank"',
    ),
    (
        ',e("span",".mt-5",""),new n.NavButton({icon:".fas.fa-power-off",text:"Sign out",onButtonClick:this.onLogOut,'
        "parent:this.constructor.name}).render(e)",
        "",
    ),
)


def patched(script: str) -> str:
    """labml's script with all changes. Raises ValueError if a text does not occur exactly once."""
    for old, new in PATCHES:
        if script.count(old) != 1:
            raise ValueError(f"labml-app's page has changed: it has {script.count(old)} times {old[:60]!r}")
        script = script.replace(old, new)
    return script
