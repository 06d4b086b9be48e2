const make = (tag, name, text, ...children) => {
  const made = document.createElement(tag);
  made.className = name;
  if (text) made.textContent = text;
  made.append(...children);
  return made;
};
const percent = (share) => `${100 * share}%`;

// A share of the axis from `start` to `end`, which may be equal.
const span = (name, start, end) => {
  const made = make("i", name);
  made.style.left = percent(start);
  made.style.width = percent(end - start);
  return made;
};

const axis = (ticks) =>
  ticks.map(([share, label]) => {
    const tick = make("span", "tick", label);
    tick.style.left = percent(share);
    return tick;
  });

const rowOf = (row, looked, ticks, choose) => {
  const button = make("button", "way", row.words);
  button.type = "button";
  button.setAttribute("aria-pressed", row.plan === looked);
  const marks = [];
  if (row.best) marks.push(make("b", "best", "best"));
  else if (row.tie) marks.push(make("b", "tie", "tie"));
  const bars = [
    ...ticks.map(([share]) => span("line", share, share)),
    span(row.estimated ? "bar estimated" : "bar", 0, row.middle),
    span("range", row.low, row.high),
  ];
  const [median, ...range] = row.text.split(" (");
  const text = make("td", "text", median);
  if (range.length) text.append(" ", make("small", "", `(${range[0]}`));
  const made = make(
    "tr", row.best ? "best" : "", "",
    make("th", "", "", button, " ", ...marks, make("code", "", row.plan)),
    make("td", "bars", "", ...bars),
    text,
    make("td", "gain", row.gain.split(" (")[0]),
    make("td", "memory", row.memory),
    make("td", "basis", row.estimated ? "estimated" : "real runs"),
  );
  made.querySelector("th").scope = "row";
  made.querySelector(".bars").setAttribute("aria-hidden", "true");
  made.onclick = () => choose(row.plan);
  return made;
};

export default function ({ data, parentElement, setTriggerValue }) {
  const table = parentElement.querySelector("table");
  const focused = parentElement.activeElement?.textContent;
  const heads = ["way to share", "", data.measure, "gain", "peak memory", "based on"];
  const head = make("tr", "", "", ...heads.map((text) => make("th", "", text)));
  head.children[1].replaceWith(make("td", "bars axis", "", ...axis(data.ticks)));
  head.children[2].className = "text";
  head.querySelectorAll("th").forEach((each) => (each.scope = "col"));
  const choose = (plan) => setTriggerValue("chosen", plan);
  const rows = data.rows.map((row) => rowOf(row, data.looked, data.ticks, choose));
  table.replaceChildren(make("thead", "", "", head), make("tbody", "", "", ...rows));
  for (const each of table.querySelectorAll("button"))
    if (each.textContent === focused) each.focus(); // a choice draws the rows anew
}
