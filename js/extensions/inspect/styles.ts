/** The inspector's styles, inside its shadow root. A page may set `--varve-ink` and the other colours of its first rule. */

export const STYLES = `
:host {
  --ink: var(--varve-ink, light-dark(#1a1d21, #e8eaed));
  --quiet: var(--varve-quiet, light-dark(#565d66, #a3abb5));
  --paper: var(--varve-paper, light-dark(#ffffff, #1c2025));
  --line: var(--varve-line, light-dark(#c9ced4, #3d454e));
  --accent: var(--varve-accent, light-dark(#0b5cad, #6db3ff));
  --live: light-dark(#0b6bc0, #4da3f5);
  --dead: light-dark(#7c8691, #8d97a2);
  --structure: light-dark(#4d8a6c, #6fc09a);
  --damaged: light-dark(#c4321f, #ff7a61);
  --torn: light-dark(#a86a00, #f0b440);
  --free: var(--paper);
  --changed: light-dark(#ffe27a, #6b5200);
  display: block;
  container-type: inline-size;
  color: var(--ink);
  font: 1rem / 1.5 system-ui, sans-serif;
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
h3, h4, p, ul, dl, dd { margin: 0; padding: 0; }
h3 { font-size: 1.1rem; overflow-wrap: anywhere; }
h4 { font-size: 1rem; }
button, select, input[type="text"], .file {
  min-height: 2.5rem;
  padding: 0 0.9rem;
  border: 1px solid var(--line);
  border-radius: 0.5rem;
  background: var(--paper);
  color: var(--ink);
  font: inherit;
}
button, .file, select { cursor: pointer; }
button:disabled { color: var(--quiet); cursor: default; }
.file { display: inline-flex; align-items: center; position: relative; }
.file input { position: absolute; inset: 0; opacity: 0; cursor: pointer; }
.file:focus-within, :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.sources, .actions { display: flex; flex-wrap: wrap; align-items: center; gap: 0.6rem; }
.sources select { max-width: 100%; }
.drop { color: var(--quiet); font-size: 0.9375rem; }
:host([data-dragging]) .sources { outline: 3px dashed var(--accent); outline-offset: 0.4rem; border-radius: 0.5rem; }
.status { min-height: 1.5rem; margin-top: 0.5rem; color: var(--quiet); font-size: 0.9375rem; }
.error {
  margin-top: 0.5rem;
  padding: 0.6rem 0.9rem;
  border-left: 4px solid var(--damaged);
  background: var(--paper);
  overflow-wrap: anywhere;
}
progress { width: 100%; accent-color: var(--accent); }
.shown { margin-top: 0.75rem; }
.facts { color: var(--quiet); font-size: 0.9375rem; }
.share {
  display: flex;
  height: 1.5rem;
  margin-top: 0.6rem;
  border: 1px solid var(--line);
  border-radius: 0.3rem;
  overflow: hidden;
}
.share i { flex: none; min-width: 2px; }
.legend { display: flex; flex-wrap: wrap; gap: 0.1rem 1.25rem; margin: 0.4rem 0 0.75rem; list-style: none; font-size: 0.9375rem; }
.legend b { font-weight: 600; font-variant-numeric: tabular-nums; }
.swatch { display: inline-block; width: 1.3rem; height: 0.8rem; margin-right: 0.4rem; border: 1px solid var(--line); vertical-align: -0.05rem; }
.live { background: var(--live); }
.dead { background: repeating-linear-gradient(135deg, var(--dead) 0 1.5px, var(--paper) 1.5px 4.5px); }
.structure { background: repeating-linear-gradient(0deg, var(--structure) 0 1.5px, var(--paper) 1.5px 5px); }
.damaged {
  background: linear-gradient(45deg, transparent 44%, var(--paper) 44% 56%, transparent 56%),
    linear-gradient(135deg, transparent 44%, var(--paper) 44% 56%, transparent 56%), var(--damaged);
  background-size: 7px 7px, 7px 7px, auto;
}
.torn { background: repeating-linear-gradient(90deg, var(--torn) 0 1.5px, var(--paper) 1.5px 5px); }
.free { background: var(--paper); }
.body { display: grid; gap: 1.25rem 2rem; margin-top: 1rem; }
.body > * { min-width: 0; }
@container (min-width: 70rem) {
  .body { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); align-items: start; }
  .caption { min-height: 3rem; }
}
.map { margin-top: 0.35rem; border-radius: 0.25rem; cursor: pointer; }
.map canvas { display: block; width: 100%; }
.caption { min-height: 1.5rem; margin-top: 0.3rem; color: var(--quiet); font-size: 0.9375rem; overflow-wrap: anywhere; }
.part + .part { margin-top: 1.1rem; }
.scroll { max-height: 22rem; margin-top: 0.35rem; overflow: auto; border: 1px solid var(--line); border-radius: 0.4rem; }
table { width: 100%; border-collapse: collapse; font-size: 0.9375rem; }
th, td { padding: 0.25rem 0.6rem; text-align: left; vertical-align: middle; overflow-wrap: break-word; }
tbody th, td:last-child { overflow-wrap: anywhere; }
th.figure, td.figure { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; overflow-wrap: normal; }
thead th { position: sticky; top: 0; background: var(--paper); color: var(--quiet); font-weight: 500; font-size: 0.875rem; }
tbody tr { border-top: 1px solid var(--line); }
tbody th { font-weight: 400; }
tr[aria-selected="true"], tr[data-selected] { box-shadow: inset 4px 0 0 var(--accent); }
td button, th button {
  min-height: 1.6rem;
  padding: 0;
  border: 0;
  background: none;
  color: var(--accent);
  text-align: left;
  text-decoration: underline;
  overflow-wrap: anywhere;
}
.state { white-space: nowrap; }
.record { container-type: inline-size; }
.bytes { display: grid; grid-template-columns: minmax(0, 1fr); gap: 1rem; margin-top: 0.5rem; }
.hex { font: 0.875rem / 1.55 ui-monospace, monospace; }
div.hex { overflow-x: auto; }
.hex .row { display: flex; gap: 0.75rem; white-space: pre; }
@container (min-width: 46rem) {
  div.hex { display: grid; grid-template-columns: repeat(2, max-content); gap: 0 1.75rem; }
}
.hex .at { color: var(--quiet); }
.hex i { font-style: normal; padding: 0 0.18rem; border-bottom: 2px solid transparent; }
.hex i[data-part="head"] { color: var(--quiet); }
.hex i[data-part="key"] { border-bottom-color: var(--torn); }
.hex i[data-tone="0"] { border-bottom-color: var(--live); }
.hex i[data-tone="1"] { border-bottom: 2px dashed var(--structure); }
.hex i[data-part="rest"] { color: var(--quiet); }
.hex i[data-on] { background: var(--accent); color: var(--paper); }
.hex i[data-changed] { background: var(--changed); color: var(--ink); font-weight: 700; outline: 1px solid var(--ink); outline-offset: -1px; }
.hex .text { color: var(--quiet); }
form.edit { display: flex; flex-wrap: wrap; align-items: end; gap: 0.6rem; margin-top: 0.6rem; }
form.edit label { display: grid; gap: 0.15rem; font-size: 0.9375rem; min-width: 0; flex: 1 1 12rem; }
.changes { margin-top: 0.6rem; padding: 0.6rem 0.9rem; border: 1px solid var(--line); border-left: 4px solid var(--changed); border-radius: 0.3rem; }
.changes ul { margin-top: 0.3rem; padding-left: 1.1rem; font-size: 0.9375rem; }
summary { width: fit-content; padding: 0.35rem 0; cursor: pointer; font-weight: 600; }
.steps { display: flex; flex-wrap: wrap; align-items: center; gap: 0.6rem; flex: 1 1 16rem; }
.steps input { flex: 1 1 8rem; accent-color: var(--accent); }
.pages { display: flex; flex-wrap: wrap; align-items: center; gap: 0.6rem; margin-top: 0.4rem; font-size: 0.9375rem; }
.pages button { min-height: 2rem; }
.gap td { color: var(--quiet); font-style: italic; }
@container (max-width: 34rem) {
  .caption { min-height: 4.5rem; }
  .wide { display: none; }
  .hex { font-size: 0.8125rem; }
  .hex .row { gap: 0.4rem; }
  .hex i { padding: 0 0.08rem; }
  th, td { padding: 0.25rem 0.35rem; }
}
`;
