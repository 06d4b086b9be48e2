"""How the page is laid out, where Streamlit's own layout wastes the first screen."""

STYLE = """<style>
.stMainBlockContainer {padding-top: 3.5rem; padding-bottom: 3rem}
@media (min-width: 640px) {.stMainBlockContainer {padding: 2.5rem 1.5rem 3rem}}
.stMainBlockContainer h2 {font-size: 1.5rem; padding: 0 0 0.5rem}
.stAlert h3 {font-size: 1.35rem; padding: 0 0 0.5rem}
.stMetric {padding: 0; margin-bottom: -0.5rem}
.stMetric > div {padding: 0.3rem 0.8rem}
.stMetric [data-testid="stMetricValue"] {font-size: 1.5rem}
[class*="st-key-outdated"] {opacity: 0.5; filter: grayscale(1)}
</style>"""
