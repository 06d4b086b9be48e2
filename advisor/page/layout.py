"""How the page is laid out, where Streamlit's own layout wastes the first screen."""

STYLE = """<style>
.stMainBlockContainer {padding-top: 3.5rem; padding-bottom: 3rem}
@media (min-width: 640px) {.stMainBlockContainer {padding: 2.5rem 1.5rem 3rem}}
.stMainBlockContainer h2 {font-size: 1.5rem; padding: 0 0 0.5rem}
.stMainBlockContainer h3 {font-size: 1.25rem; padding: 0.75rem 0 0.5rem}
.stMainBlockContainer .stAlert h3 {font-size: 1.35rem; padding: 0 0 0.5rem}
.stMetric {padding: 0; margin-bottom: -0.5rem}
.stMetric > div {padding: 0.3rem 0.8rem}
.stMetric [data-testid="stMetricValue"] {font-size: 1.5rem}
.stMetric [data-testid="stMetricDelta"] * {white-space: normal; overflow: visible}
.stTable td p {white-space: pre-line}
[class*="st-key-outdated"] {opacity: 0.5; filter: grayscale(1)}
[class*="st-key-narrow"] {display: none}
@media (max-width: 640px) {
.stElementContainer:has(> .stMetric) {flex: 1 1 40%; min-width: 40%}
.st-key-wide {display: none}
[class*="st-key-narrow"] {display: flex}
.st-key-narrow td:nth-child(2) p {overflow-wrap: anywhere; overflow: hidden}
.st-key-narrow td:nth-child(2) p {display: -webkit-box; -webkit-box-orient: vertical}
.st-key-narrow td:nth-child(2) p {-webkit-line-clamp: 3}
[class*="st-key-rows-"] :is(table, tbody, tr) {display: block}
[class*="st-key-rows-"] thead {display: none}
[class*="st-key-rows-"] tr + tr {border-top: 1px solid #80808080}
[class*="st-key-rows-"] td {display: flex; justify-content: space-between; gap: 1rem; border: 0}
[class*="st-key-rows-"] td:first-child {font-weight: 600}
[class*="st-key-rows-"] td::before {opacity: 0.7}
}
</style>"""
