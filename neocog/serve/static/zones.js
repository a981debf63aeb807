// A form: its blank sheets, and the fields on them, drawn with the mouse.

import { $, ask, boxOf, drawBox, follow, make, place, save } from "./common.js";

export const form = { form: 1, layouts: [] };
let page = null, field = null, unsaved = false;
const past = [];

export function say(words, isError = false) {
  $("told").textContent = words;
  $("told").classList.toggle("error", Boolean(isError));
}

// --- sheets and forms come in -----------------------------------------------------------------

const urlOf = (blob) => new Promise((good, bad) => {
  const reader = Object.assign(new FileReader(), { onload: () => good(reader.result), onerror: bad });
  reader.readAsDataURL(blob);
});
const blankOf = async (file, number) => urlOf(await (await ask(`api/page?page=${number}`, file)).blob());
const layoutOf = (one) => form.layouts.find(({ pages }) => pages.includes(one));

function free(name, taken) {
  for (let n = 1; ; n += 1) if (!taken.includes(n > 1 ? `${name} ${n}` : name)) return n > 1 ? `${name} ${n}` : name;
}

async function openSheet(file) {
  const count = (await (await ask("api/thumbnails", file)).json()).length || 1, pages = [];
  for (let n = 0; n < Math.min(count, 16); n += 1) pages.push({ blank: await blankOf(file, n), fields: [] });
  const plain = file.name.replace(/\.\w+$/, "").replace(/[.,;]/g, " ").trim().slice(0, 60) || "sheet";
  form.layouts.push({ name: free(plain, form.layouts.map(({ name }) => name)), pages });
  unsaved = true;
  show(pages[0]);
}

// A form's blanks and lists may be in other files: they are opened with it.
async function openForm(file, others) {
  const found = JSON.parse(await file.text());
  const beside = (name) => {
    const other = others.find((one) => one.name === String(name).split("/").at(-1));
    if (!other) throw new Error(name ? `names the file ${name}; open both together` : "has a page without its blank");
    return other;
  };
  const some = (list, isRight) => list?.length && list.every(isRight);
  if (found.form !== 1 || !some(found.layouts, ({ pages }) => some(pages, ({ fields }) => fields?.every(({ box }) => box))))
    throw new Error("is no form, version 1");
  if (unsaved && !confirm("What is drawn is not saved. Open the form in its place?")) return;
  for (const one of found.layouts.flatMap(({ pages }) => pages)) {
    if (!/^data:image\/(png|jpeg);/.test(one.blank)) {
      const bytes = (url) => Uint8Array.from(atob(url.split(",")[1]), (char) => char.charCodeAt(0));
      const file = one.blank?.startsWith("data:") ? new Blob([bytes(one.blank)]) : beside(one.blank);
      one.blank = await blankOf(file, one.blank_page ?? 0);
    }
    delete one.blank_page;
    for (const own of one.fields)
      if (typeof own.valid === "string") own.valid = parted(await beside(own.valid).text());
  }
  form.layouts = found.layouts;
  past.length = 0;
  unsaved = false;
  show(form.layouts[0].pages[0]);
}

// What is wrong with the form, as the command would say it.
const fault = () => ask("api/form", JSON.stringify(form)).then(() => "", ({ message }) => message);

async function open(files) {
  const isForm = ({ name }) => /\.json$/i.test(name);
  const json = files.find(isForm), sheets = files.filter((file) => !isForm(file));
  for (const file of json ? [json] : sheets) {
    say(`Opening ${file.name} ...`);
    try {
      await (json ? openForm(json, sheets) : openSheet(file));
      const wrong = json && page ? await fault() : "";
      say(wrong, wrong);
    } catch (error) {
      say(`${file.name} ${error.message}`, true);
    }
  }
}

$("open").onchange = ({ target }) => {
  open([...target.files]);
  target.value = "";
};
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  if (!$("zones").hidden) open([...event.dataTransfer.files]);
});

// --- what is shown ----------------------------------------------------------------------------

function show(one) {
  page = one;
  $("zones").classList.add("open");
  $("blank").src = one.blank;
  $("tabs").replaceChildren(...form.layouts.flatMap(({ name, pages }) => pages.map((own, n) =>
    make("button", { ariaPressed: own === one, onclick: () => show(own) },
      pages.length > 1 ? `${name}, page ${n + 1}` : name))),
    make("button", { title: "Delete this layout", ariaLabel: "Delete this layout", onclick: close }, "×"));
  choose(null);
}

function close() {
  const own = layoutOf(page), drawn = own.pages.some(({ fields }) => fields.length);
  if (drawn && !confirm(`Delete ${own.name} and its fields?`)) return;
  form.layouts.splice(form.layouts.indexOf(own), 1);
  past.length = 0;
  unsaved = form.layouts.length > 0;
  if (unsaved) show(form.layouts[0].pages[0]);
  else location.reload();
}

function draw() {
  for (const box of $("sheet").querySelectorAll(".box")) box.remove();
  $("fields").replaceChildren(...page.fields.map((one) =>
    make("li", {}, make("button", { className: one === field ? "current" : "", onclick: () => choose(one) }, one.name))));
  for (const one of page.fields) {
    const box = make("span", { className: `box field ${one === field ? "selected" : ""}` });
    box.dataset.char = one.name;
    box.onpointerdown = (event) => grab(event, one);
    place(box, one.box, [1, 1]);
    $("sheet").append(box);
  }
}

const lines = (value) => [value ?? []].flat().join("\n");
const parted = (words) => words.split("\n").map((word) => word.trim()).filter(Boolean);

function choose(one) {
  field = one;
  $("editor").hidden = !one;
  if (one) {
    const { name, pattern, valid, rule, required } = one;
    for (const [id, value] of Object.entries({ name, pattern, valid, rule })) $(id).value = lines(value);
    $("rule").value = [rule ?? []].flat().join("; ");
    $("required").checked = Boolean(required);
    trouble();
  }
  draw();
}

// --- changes ----------------------------------------------------------------------------------

function remember() {
  past.push([page, structuredClone(page.fields)]);
  unsaved = true;
}

function undo() {
  const isSame = ([one, fields]) => JSON.stringify(fields) === JSON.stringify(one.fields);
  while (past.length && isSame(past.at(-1))) past.pop();
  const [one, fields] = past.pop() ?? [];
  if (!one) return;
  one.fields = fields;
  show(one);
}

const others = () => layoutOf(page).pages.flatMap(({ fields }) => fields).filter((one) => one !== field);

function trouble() {
  const name = $("name").value;
  const wrong = !/^[^\s.,;]([^.,;\t\r\n]*[^\s.,;])?$/.test(name) ? "A name has no . , or ;"
    : others().some((one) => one.name === name) ? "Another field has this name" : "";
  $("name").setCustomValidity(wrong);
  say(wrong, Boolean(wrong));
  return wrong;
}

for (const id of ["name", "pattern", "valid", "rule", "required"]) {
  $(id).onfocus = remember;
  $(id).oninput = () => {
    const one = (some) => (some.length > 1 ? some : some[0]), some = parted($(id).value);
    if (id === "required") field.required = $(id).checked || undefined;
    else if (id === "name") field.name = trouble() ? field.name : $(id).value;
    else if (id === "rule") field.rule = one(parted($(id).value.replaceAll(";", "\n")));
    else field[id] = id === "valid" ? (some.length ? some : undefined) : one(some);
    draw();
  };
}

function remove() {
  remember();
  page.fields = page.fields.filter((one) => one !== field);
  choose(null);
}
$("remove").onclick = remove;
$("undo").onclick = undo;

const round = (share) => Math.round(share * 1e4) / 1e4;

// A box of four digits that does not leave the page.
function tidy([x, y, w, h]) {
  const [left, top, right, foot] = [x, y, x + w, y + h].map(round);
  return [left, top, round(right - left), round(foot - top)];
}

function put([x, y, w, h]) {
  const within = (start, side) => Math.min(Math.max(start, 0), 1 - side);
  field.box = tidy([within(x, w), within(y, h), w, h]);
  draw();
}

// At an edge of a box it is resized, elsewhere moved.
function grab(event, one) {
  if (event.button) return;
  event.stopPropagation();
  const [x, y, w, h] = one.box, ends = [x, y, x + w, y + h], edge = $("sheet").getBoundingClientRect();
  const near = ends.map((end, n) => Math.abs(n % 2 ? (end * edge.height) - (event.clientY - edge.top)
    : (end * edge.width) - (event.clientX - edge.left)) < Math.min(7, 0.3 * (n % 2 ? h * edge.height : w * edge.width)));
  choose(one);
  remember();
  const from = follow($("sheet"), event, (to) => {
    const by = [to[0] - from[0], to[1] - from[1]];
    const moved = ends.map((end, n) => (near[n] ? Math.min(Math.max(end + by[n % 2], 0), 1) : end));
    const box = boxOf(moved.slice(0, 2), moved.slice(2));
    if (!near.includes(true)) put([x + by[0], y + by[1], w, h]);
    else if (box[2] > 0.002 && box[3] > 0.002) put(box);
  });
}

$("sheet").onpointerdown = (event) => {
  if (event.target !== $("blank") || event.button) return;
  drawBox($("sheet"), event, (box) => {
    if (!box) return choose(null);
    field = null;
    remember();
    const one = { name: free("field", others().map(({ name }) => name)), box: tidy(box) };
    page.fields.push(one);
    choose(one);
    $("name").select();
  });
};

addEventListener("keydown", (event) => {
  const { key } = event, step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  if ($("zones").hidden || !page || event.target.matches("input, textarea")) return;
  if ((event.ctrlKey || event.metaKey) && key === "z") undo();
  else if (field && /^(Delete|Backspace)$/.test(key)) remove();
  else if (key === "Escape") choose(null);
  else if (field && step) {
    remember();
    put([field.box[0] + step[0] / 1000, field.box[1] + step[1] / 1000, field.box[2], field.box[3]]);
  } else return;
  event.preventDefault();
});

$("save").onclick = async () => {
  const wrong = await fault();
  save("form.json", "application/json", `${JSON.stringify(form, null, 1)}\n`);
  unsaved = false;
  say(wrong && `It is saved, but no sheets can be read with it. ${wrong}`, wrong);
};
addEventListener("beforeunload", (event) => unsaved && event.preventDefault());
