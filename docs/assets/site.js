// Wide tables scroll by keyboard too.
addEventListener("load", () =>
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((table) => { table.tabIndex = 0 }))
