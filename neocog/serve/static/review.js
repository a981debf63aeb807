// Sheets of a form: a queue to the server, cells sorted by doubt, what a person says of them.

import { $, about, ask, before, copy, csv, inert, make, plural, save, tsv } from "./common.js";
import { form, say } from "./zones.js";

const sheets = [], cells = [], queue = [], done = [];
let running = 0, unsaved = false, touched = false, sent = null; // the form that sheets are read with

for (const id of ["zones", "review"]) $(`show-${id}`).onclick = () => show(id);

function show(id) {
  for (const other of ["zones", "review"]) {
    $(other).hidden = other !== id;
    $(`show-${other}`).ariaPressed = other === id;
  }
}

// --- sheets in --------------------------------------------------------------------------------

function add(files) {
  queue.push(...files);
  sent ??= structuredClone(form);
  show("review");
  while (running < about.workers && queue.length) work();
}

for (const id of ["sheets", "more"])
  $(id).onchange = ({ target }) => {
    if (id === "more" || !unsaved || confirm("What was checked is neither downloaded nor saved. Begin anew?")) {
      if (id === "sheets") begin();
      add(target.files);
    }
    target.value = "";
  };
addEventListener("drop", (event) => $("review").hidden || add(event.dataTransfer.files));

$("cells").onpointerdown = () => { touched = true; };

function begin() {
  for (const list of [sheets, cells, queue, done]) list.length = 0;
  for (const id of ["cells", "problems"]) $(id).replaceChildren();
  unsaved = touched = false;
  sent = null;
}

async function work() {
  running += 1;
  for (let file; (file = queue.shift()); count()) {
    const mine = sent;
    try {
      const name = encodeURIComponent(file.name), body = new Blob([JSON.stringify(mine), "\n", file]);
      if (!mine.layouts.length) throw new Error("form: open a sheet and draw its fields first");
      const records = await (await ask(`api/sheets?pictures=1&name=${name}`, body)).json();
      for (const record of mine === sent ? records : []) addSheet(file, record);
    } catch (error) {
      if (mine !== sent) continue; // it was begun anew
      if (error.message.startsWith("form: ")) {
        queue.length = 0;
        sent = sheets.length ? sent : null;
        show("zones");
        say(error.message, true);
      } else addSheet(file, { source: file.name, page: 0, error: error.message, fields: {} });
    }
  }
  running -= 1;
  count();
}

function addSheet(file, record) {
  const sheet = { file, record, cells: new Map() };
  sheets.push(sheet);
  if (record.error)
    $("problems").append(make("li", { className: "error" }, `${record.source}: ${record.error}`));
  for (const [name, own] of Object.entries(record.fields)) {
    const cell = { sheet, name, own, text: own.text, checked: false };
    sheet.cells.set(name, cell);
    if (own.page !== null) addCell(cell);
  }
}

// In doubt is what has a ?, as in the table; it stands first, then what is least sure. An empty field has no p.
const isDoubtful = ({ text }) => text.includes("?");
const doubt = ({ own }) => (own.p ?? (own.text ? 0 : 1)) - (isDoubtful(own) ? 1 : 0);
// What is offered as the answer: of a cell in doubt the likeliest reading, unless more than that stands there.
const isAll = ({ text, why }) => text !== "?" || /, or | is not | not hold|against it|in doubt/.test(why);
const offered = ({ own, text }) => (isDoubtful({ text }) && isAll(own) ? own.read : text);
const isFocused = ({ input }) => input === document.activeElement;
const chance = ({ own }) => (own.p === null ? "" : own.p > 0.999 ? "p > 0.999" : `p ${own.p.toFixed(3)}`);

function addCell(cell) {
  const { own, sheet: { record } } = cell;
  const page = record.page || own.page ? `, page ${own.page + 1}` : "";
  cell.input = make("input", { value: offered(cell), maxLength: 200, spellcheck: false, autocomplete: "off",
    ariaLabel: `${cell.name} of ${record.source}`, onfocus: () => cell.input.select(),
    onchange: () => accept(cell), onkeydown: (event) => press(cell, event) });
  cell.node = make("li", {}, make("img", { src: own.picture, alt: "" }), cell.input, make("span", { className: "about" },
    make("b", {}, cell.name), make("span", { className: "dim" }, record.source + page)), make("span", { className: "dim" }));
  insert(cell);
  mark(cell);
  if (!touched) cells[0].input.focus();
}

// What is in doubt and belongs before the cell at hand comes next: nobody goes back for it.
function insert(cell) {
  const before = cells.findIndex((other) => doubt(other) > doubt(cell));
  const next = touched && isDoubtful(cell) ? cells.findIndex(isFocused) + 1 : 0;
  const place = before < 0 ? cells.length : Math.max(before, next);
  $("cells").insertBefore(cell.node, cells[place]?.node ?? null);
  cells.splice(place, 0, cell);
}

function mark(cell) {
  const { own } = cell;
  cell.node.className = cell.checked ? "right" : isDoubtful(cell) ? "unsure" : "";
  cell.node.lastChild.textContent = cell.checked ? "checked" : [chance(cell), own.why].filter(Boolean).join(", ");
  count();
}

function count() {
  const left = cells.filter(isDoubtful).length, waiting = queue.length + running;
  $("count").textContent = `${waiting ? `Reading, ${waiting} to come. ` : ""}${plural(sheets.length, "sheet")}, ` +
    `${plural(cells.length, "cell")}: ${left} in doubt, ${cells.filter(({ checked }) => checked).length} checked.`;
  $("labels").hidden = !about.corrections;
}

// --- what a person says -----------------------------------------------------------------------

function accept(cell) {
  const text = cell.input.value.trim();
  if (text.includes("?")) return false;
  if (cell.checked && text === cell.text) return true;
  done.push([cell, cell.text, cell.checked]);
  Object.assign(cell, { text, checked: true });
  unsaved = true;
  mark(cell);
  weigh(cell.sheet);
  return true;
}

// What a person says is certain: the server applies the sheet's rules again, to the cells that nobody has checked.
async function weigh(sheet) {
  const turn = sheet.turn = (sheet.turn ?? 0) + 1, own = [...sheet.cells.values()];
  if (!own.some((cell) => cell.own.before)) return;
  const { name, pages } = sent.layouts.find((one) => one.name === sheet.record.layout);
  const layout = { name, pages: pages.map((page) => ({ fields: page.fields.map(({ name, box, rule }) => ({ name, box, rule })) })) };
  const fields = Object.fromEntries(own.map((cell) => [cell.name, cell.checked ? cell.text : cell.own.before]));
  try {
    const said = await (await ask("api/weigh", JSON.stringify({ layout, fields }))).json();
    for (const [name, { text, p, why, read }] of turn === sheet.turn && sheets.includes(sheet) ? Object.entries(said) : []) {
      const cell = sheet.cells.get(name), old = cell.input && offered(cell), was = isDoubtful(cell);
      Object.assign(cell.own, { text, p, why, read });
      cell.text = text;
      if (!cell.input) continue; // of a page that is missing
      if (cell.input.value === old) cell.input.value = offered(cell);
      if (isFocused(cell)) cell.input.select();
      else if (was !== isDoubtful(cell)) insert(cells.splice(cells.indexOf(cell), 1)[0]);
      mark(cell);
    }
  } catch (error) {
    $("count").textContent = `Rules are not weighed again: ${error.message}`;
  }
}

function press(cell, event) {
  const { key } = event;
  touched = true;
  if (key === "Enter") {
    if (!accept(cell)) return cell.input.select(); // say first what each ? is
    const rest = cells.slice(cells.indexOf(cell) + 1);
    (rest.find(({ checked }) => !checked) ?? rest[0] ?? cell).input.focus();
  } else if (key === "Escape" || ((event.ctrlKey || event.metaKey) && key === "z")) {
    if (cell.input.value === offered(cell) && key === "z" && done.length) {
      const [last, text, checked] = done.pop();
      Object.assign(last, { text, checked });
      cell = last;
      mark(cell);
      weigh(cell.sheet);
    }
    cell.input.value = offered(cell);
    cell.input.focus();
    cell.input.select();
  } else if (/^Arrow(Up|Down)$/.test(key)) {
    cells[cells.indexOf(cell) + (key === "ArrowUp" ? -1 : 1)]?.input.focus();
  } else return;
  event.preventDefault();
}

// --- what is taken home -----------------------------------------------------------------------

const names = () => [...new Set((sent ?? form).layouts.flatMap(({ pages }) =>
  pages.flatMap(({ fields }) => fields.map(({ name }) => name))))];
const COLUMNS = {
  source: ({ source }) => source, page: ({ page }) => page, layout: ({ layout }) => layout,
  fit: ({ fit }) => (fit?.length ? Math.min(...fit).toFixed(3) : ""),
  residual: ({ residual }) => (residual?.length ? Math.max(...residual).toFixed(2) : ""),
  warnings: ({ warnings }) => warnings?.join(", "), error: ({ error }) => error,
};

// A person is taken to be right.
const told = ({ own, text, checked }) => {
  const { picture, before, ...rest } = own;
  return checked ? { ...rest, text, p: 1, why: "checked", ...(text !== own.text && { corrected_from: own.text }) } : rest;
};

function tableOf() {
  const fields = names(), head = [...Object.keys(COLUMNS), "doubts", ...fields.flatMap((name) => [name, `${name}.p`, `${name}.why`])];
  sheets.sort(before);
  return [head, ...sheets.map(({ record, cells: own }) => {
    const said = new Map([...own].map(([name, cell]) => [name, told(cell)]));
    const doubts = [...said.keys()].filter((name) => said.get(name).text.includes("?")).join(", ");
    return [...Object.values(COLUMNS).map((of) => of(record) ?? ""), doubts, ...fields.flatMap((name) => {
      const { text = "", p = null, why = "" } = said.get(name) ?? {};
      return [text, p?.toFixed(4), why];
    })];
  })];
}

const tables = {
  csv: () => save("table.csv", "text/csv", csv(tableOf().map((row) => row.map(inert)))),
  tsv: () => save("table.tsv", "text/tab-separated-values", tsv(tableOf())),
  jsonl: () => save("table.jsonl", "application/x-ndjson", sheets.map(({ record, cells: own }) => `${JSON.stringify(
    { ...record, fields: Object.fromEntries([...own].map(([name, cell]) => [name, told(cell)])) })}\n`).join("")),
};
for (const button of document.querySelectorAll("[data-table]"))
  button.onclick = () => {
    tables[button.dataset.table]();
    unsaved = false;
  };
$("copy-table").onclick = () => copy(tsv([["source", ...names()], ...sheets.map(({ record, cells: own }) =>
  [record.source, ...names().map((name) => own.get(name)?.text ?? "")])]));

// Checked cells as lines to learn from: all of a page at once, as each page replaces what was kept of it.
$("labels").onclick = async () => {
  let kept = 0, left = 0;
  for (const { file, cells: own } of sheets) {
    const written = [...own.values()].filter(({ checked, text }) => checked && text);
    const known = written.filter(({ text }) => [...text].every((char) => /[0-9 ]/.test(char) || about.signs.includes(char)));
    left += written.length - known.length;
    for (const page of new Set(known.map((cell) => cell.own.page))) {
      const lines = known.filter(({ own: { page: at } }) => at === page)
        .map(({ text, own: { corners } }) => ({ text, corners }));
      const text = lines.map((line) => line.text).join("\n");
      const digits = [...text].filter((char) => /[0-9]/.test(char)).map((char) => ({ char, box: null }));
      const record = JSON.stringify({ text, page, cells: true, digits, lines });
      try {
        kept += (await (await ask("api/corrections", new Blob([record, "\n", file]))).json()).lines;
      } catch (error) {
        $("count").textContent = `Not saved: ${error.message}`;
        return;
      }
    }
  }
  unsaved = false;
  const others = left ? `; ${left} with other letters ${left === 1 ? "is" : "are"} not` : "";
  $("count").textContent = `${plural(kept, "cell")} ${kept === 1 ? "is" : "are"} saved as lines${others}.`;
};

addEventListener("beforeunload", (event) => unsaved && event.preventDefault());
