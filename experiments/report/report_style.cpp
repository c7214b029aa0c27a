#include "experiments/report/report_style.h"

namespace specdec {

const char* const kReportStyle = R"(
:root { color-scheme: light dark; --text: #1d2126; --page: #ffffff; --soft: #59616a;
  --line: #d9dde2; --band: #f5f7f9; --card: #ffffff; --link: #0a5fa5; --good: #d3eee2;
  --good-edge: #009e73; --bad: #fbe0d2; --bad-edge: #b84a00; --warn: #fff6dc; --warn-edge: #d9a400; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e3e6ea; --page: #14171a; --soft: #a3abb4; --line: #343a41; --band: #1d2125;
    --card: #1a1d21; --link: #7cb8ee; --good: #12402f; --good-edge: #3fc79a; --bad: #4b2510;
    --bad-edge: #f09a63; --warn: #2c2610; --warn-edge: #a98a1c; } }
* { box-sizing: border-box; }
body { color: var(--text); background: var(--page); font: 16px/1.55 system-ui, "Segoe UI",
  "Noto Sans", "DejaVu Sans", sans-serif; max-width: 100rem; margin: 0 auto;
  padding: 2rem 1.5rem 5rem; }
h1 { margin: 0 0 .4rem; font-size: 2rem; line-height: 1.2; letter-spacing: -.01em; }
h2 { margin: 2.8rem 0 .8rem; padding-bottom: .3rem; font-size: 1.3rem;
  border-bottom: 1px solid var(--line); }
h3 { margin: 1.4rem 0 .4rem; font-size: 1rem; }
p, ul { max-width: 52rem; margin: .5rem 0; }
h1, h3, li, dt, dd, p, figcaption, pre { overflow-wrap: anywhere; }
a { color: var(--link); }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .86em; }
pre { background: var(--band); border-radius: 6px; padding: .7rem 1rem; overflow-x: auto; }
.soft, figcaption, .files { color: var(--soft); }
.lead { font-size: 1.2rem; }
.warnings { max-width: 60rem; background: var(--warn); border-left: 4px solid var(--warn-edge);
  border-radius: 0 6px 6px 0; padding: .5rem 1rem; margin: 1.2rem 0; font-size: .94rem; }
.warnings ul { margin: .2rem 0; padding-left: 1.2rem; }
.mark { display: inline-block; width: .7em; height: .7em; border-radius: 2px;
  margin-right: .5em; }
.mark.round { border-radius: 50%; }
.mark.triangle { border-radius: 0; clip-path: polygon(50% 0, 100% 100%, 0 100%); }
.mark.lozenge { border-radius: 0; clip-path: polygon(50% 0, 100% 50%, 50% 100%, 0 50%); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; width: fit-content;
  max-width: 100%; }
.tall { max-height: 34rem; overflow-y: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .86rem; }
th, td { padding: .42rem .5rem; text-align: right; white-space: nowrap; }
td { border-top: 1px solid var(--line); }
th { background: var(--band); font-weight: 600; white-space: normal; vertical-align: bottom;
  line-height: 1.3; position: sticky; top: 0; }
td:has(.interval) { white-space: normal; }
.interval { color: var(--soft); white-space: nowrap; }
th.name, td.name { text-align: left; }
td.name { white-space: normal; max-width: 26rem; overflow-wrap: break-word; }
td.name:has(.mark) { min-width: 9.5rem; }
td.name .mark { float: left; margin-top: .42em; }
th.name:first-child, td.name:first-child { position: sticky; left: 0; }
th.name:first-child { z-index: 1; }
td { background: var(--page); }
tbody tr:hover td { background: var(--band); }
.scripted .sortable th { cursor: pointer; }
.scripted .sortable th:hover, .sortable th:focus-visible { color: var(--link); }
th[aria-sort=ascending]::after { content: " \25B2"; font-size: .7em; }
th[aria-sort=descending]::after { content: " \25BC"; font-size: .7em; }
.files { font-size: .82rem; margin: .3rem 0 0; }
.figures { display: grid; gap: 1.2rem; grid-template-columns:
  repeat(auto-fill, minmax(min(100%, 29rem), 1fr)); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .9rem 1rem .8rem; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: .88rem; line-height: 1.45; margin-top: .5rem; }
dl { columns: 2 26rem; column-gap: 2.5rem; font-size: .92rem; }
dl div { break-inside: avoid; padding-bottom: .5rem; }
dt { font-weight: 600; }
dd { margin: 0; }
details { margin: .7rem 0; }
summary { cursor: pointer; font-weight: 600; }
.samples { display: grid; gap: 1.2rem; grid-template-columns:
  repeat(auto-fill, minmax(min(100%, 29rem), 1fr)); align-items: start; }
.sample { border: 1px solid var(--line); border-radius: 8px; padding: .7rem 1rem; min-width: 0; }
.sample h3 { margin: 0 0 .2rem; }
.sample p { margin: .3rem 0; }
.piece-text { white-space: pre-wrap; line-height: 1.75; }
.a { background: var(--good); border-bottom: 2px solid var(--good-edge); border-radius: 2px; }
.r { background: var(--bad); color: var(--bad-edge); border-radius: 3px; padding: 0 .25em;
  font-size: .84em; }
.r s { text-decoration-thickness: 1px; }
@media print { .scroll, .tall { overflow: visible; max-height: none; } body { padding: 0; } }
)";

const char* const kReportScript = R"(
document.documentElement.classList.add('scripted');
const valueOf = (row, column) => {
  const text = row.cells[column].textContent.trim();
  const number = parseFloat(text);
  return { text, number, missing: text === '-' || text === '' };
};
const compareCells = (a, b, up) => {
  if (a.missing || b.missing) { return a.missing - b.missing; }
  const both = !Number.isNaN(a.number) && !Number.isNaN(b.number);
  const order = both ? a.number - b.number
                     : a.text.localeCompare(b.text, undefined, { numeric: true });
  return up ? order : -order;
};
for (const table of document.querySelectorAll('table.sortable')) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const sort = () => {
      const names = heading.classList.contains('name');
      const before = heading.getAttribute('aria-sort');
      const up = before ? before === 'descending' : names;
      headings.forEach((other) => other.removeAttribute('aria-sort'));
      heading.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => compareCells(valueOf(a, column), valueOf(b, column), up));
      table.tBodies[0].append(...rows);
    };
    heading.tabIndex = 0;
    heading.title = 'sort by this column';
    heading.addEventListener('click', sort);
    heading.addEventListener('keydown', (event) => { if (event.key === 'Enter') { sort(); } });
  });
}
)";

}  // namespace specdec
