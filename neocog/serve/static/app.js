// Pictures: a queue to the server, the list of pages, one page with its digits, corrections.

import { $, about, ask, copy, describe, drawBox, drawBoxes, isDoubtful, make, read, shade, tokens }
  from "./common.js";
import { downloads, tsv } from "./download.js";

const pages = [];
const queue = [];
let running = 0, finished = 0, skipped = 0;
let current = null, selected = null;

// --- pictures in -----------------------------------------------------------------------------

const isPicture = (file) =>
  /^image\/|^application\/pdf$/.test(file.type) ||
  about.suffixes.some((suffix) => file.name.toLowerCase().endsWith(suffix));

export function add(files, { all = true } = {}) {
  for (const { file, name } of files) {
    if (all || (isPicture(file) && !file.name.startsWith("."))) queue.push({ file, name });
    else skipped += 1;
  }
  while (running < about.workers && queue.length) work();
  showProgress();
}

async function work() {
  running += 1;
  for (let next; (next = queue.shift()); finished += 1, showProgress()) {
    const { file, name } = next;
    try {
      const records = await read(file, name, "&table=1");
      const made = records.map((record) => addPage(file, record, records.length > 1));
      if (!(await Promise.all(made.map((page) => page.record.error || thumbnail(page)))).every(Boolean))
        await thumbnails(file, made);
    } catch (error) {
      addPage(file, { source: name, page: 0, text: "", digits: [], error: error.message });
    }
  }
  running -= 1;
  showProgress();
}

function showProgress() {
  const left = queue.length + running, total = finished + left;
  const note = skipped ? `, ${skipped} skipped (no pictures)` : "";
  $("progress").hidden = !left && !skipped;
  $("progress").firstChild.textContent = left
    ? `Reading, ${finished} of ${total} done${note}` : `${finished} read${note}`;
  Object.assign($("progress").lastChild, { max: total || 1, value: finished, hidden: !left });
}

const named = (list) =>
  [...list].map((file) => ({ file, name: file.webkitRelativePath || file.name }));

for (const id of ["files", "folder", "photo"]) {
  $(id).onchange = (event) => {
    add(named(event.target.files), { all: id !== "folder" });
    event.target.value = "";
  };
}

async function* walk(entry) {
  if (entry.isFile) {
    const file = await new Promise((good, bad) => entry.file(good, bad));
    yield { file, name: entry.fullPath.slice(1) };
  } else {
    const reader = entry.createReader();
    const some = () => new Promise((good, bad) => reader.readEntries(good, bad));
    for (let part; (part = await some()).length; ) for (const one of part) yield* walk(one);
  }
}

addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("over");
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("over");
});
addEventListener("drop", async (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
  const entries = items.map((item) => item.webkitGetAsEntry());
  add(items.map((item) => item.getAsFile()).flatMap((file, n) =>
    entries[n]?.isDirectory ? [] : [{ file, name: file.name }]));
  for (const entry of entries.filter((one) => one?.isDirectory))
    for await (const file of walk(entry)) add([file], { all: false });
});
addEventListener("paste", (event) => add(named(event.clipboardData.files)));

// --- the list of pages -----------------------------------------------------------------------

const worth = (digit) => isDoubtful(digit) - (digit.char === "?" ? -1 : digit.p);
const byDoubt = (page) => digitsOf(page).sort((a, b) => worth(b) - worth(a));
const digitsOf = (page) => page.tokens.filter((token) => token.box);
const spelled = (some) => some.map((token) => token.char).join("");
export const textOf = (page) => spelled(page.tokens);
const isDigit = (token) => /[0-9?]/.test(token.char);
const split = (some, isEnd) => some.reduce((parts, token, n) =>
  isEnd(token, n) ? [...parts, []] : [...parts.slice(0, -1), [...parts.at(-1), token]], [[]]);
const linesOf = (page) => split(page.tokens, ({ char }) => char === "\n").filter((line) => line.length);

// Smaller for what a person should look at sooner.
function doubt(page) {
  const digits = digitsOf(page), rejected = digits.filter((digit) => digit.char === "?");
  if (page.record.error) return -2;
  if (rejected.length) return -1 - rejected.length / digits.length + 0.5;
  return digits.length ? Math.min(about.sure_p, ...digits.map(({ p, whole }) => whole ?? p)) : -0.25;
}

function addPage(file, record, many = false) {
  const page = { file, record, many, tokens: tokens(record) };
  page.doubt = doubt(page);
  page.node = make("button", { onclick: () => open(page) },
    make("canvas", { width: 96, height: 96 }), make("span", { className: "about" }), make("span"));
  const after = pages.findIndex((other) => other.doubt > page.doubt);
  pages.splice(after < 0 ? pages.length : after, 0, page);
  $("list").insertBefore(make("li", {}, page.node), $("list").children[pages.indexOf(page)] ?? null);
  $("pictures").classList.remove("empty");
  showItem(page);
  if (!current) open(page, { quiet: true });
  return page;
}

function nameOf({ record, many }) {
  return record.source + (many ? `, page ${record.page + 1}` : "");
}

function showItem(page) {
  const [, words, badge] = page.node.children;
  const left = digitsOf(page).filter(isDoubtful).length;
  const text = page.record.error || textOf(page).replaceAll("\n", " · ") || "no digits found";
  words.replaceChildren(make("b", {}, nameOf(page)),
    make("span", { className: page.record.error ? "error" : "dim" }, text));
  badge.className = `badge ${page.record.error ? "no" : page.saved ? "right" : left ? "unsure" : ""}`;
  badge.textContent = page.record.error ? "!" : page.saved ? "✓" : left || "";
  badge.title = left && !page.saved ? `${left} to check` : "";
}

async function thumbnail(page, source = page.record.page ? null : page.file) {
  try {
    const picture = await createImageBitmap(source, { resizeHeight: 96 });
    const scale = Math.max(96 / picture.width, 1);
    page.node.firstChild.getContext("2d")
      .drawImage(picture, 0, 0, picture.width * scale, 96 * scale);
    picture.close();
    return true;
  } catch {
    return false; // the browser does not know its format
  }
}

// All pages of a file, drawn by the server; where that fails they are drawn when they are opened.
async function thumbnails(file, made) {
  const some = await ask("api/thumbnails", file).then((answer) => answer.json()).catch(() => []);
  for (const page of made.filter(({ record }) => some[record.page])) {
    const image = make("img", { src: some[page.record.page] });
    await image.decode().then(() => thumbnail(page, image)).catch(() => {});
  }
}

const isNarrow = () => matchMedia("(max-width: 800px)").matches;

// --- one page --------------------------------------------------------------------------------

async function open(page, { quiet = false } = {}) {
  current?.node.classList.remove("current");
  current = page;
  page.node.classList.add("current");
  $("page").hidden = false;
  $("title").textContent = nameOf(page);
  say(page.record.error ?? (page.tokens.length ? "" : "No digits found."), page.record.error);
  $("confirm").hidden = !about.corrections || Boolean(page.record.error);
  URL.revokeObjectURL($("picture").src);
  $("picture").removeAttribute("src");
  choose(null);
  if (!quiet && isNarrow()) $("page").scrollIntoView();
  if (page.record.error) return;
  try {
    await showPicture(page);
  } catch (error) {
    if (page === current) say(`The picture cannot be shown: ${error.message}`, true);
  }
  if (page === current) showDigits();
}

// The browser's own decoder where it has one, else the server's.
async function showPicture(page) {
  const image = $("picture");
  const show = (blob) => {
    image.src = URL.createObjectURL(blob);
    return image.decode();
  };
  try {
    if (page.record.page) throw new Error("not the first");
    await show(page.file);
  } catch {
    if (page !== current) return;
    const blob = await (await ask(`api/page?page=${page.record.page}`, page.file)).blob();
    thumbnail(page, blob);
    if (page === current) await show(blob);
  }
}

function say(words, isError = false) {
  $("said").textContent = words;
  $("said").classList.toggle("error", Boolean(isError));
}

function showDigits() {
  const lines = linesOf(current), { error } = current.record;
  $("text").replaceChildren(...lines.flatMap((line, n) => [n ? "\n" : "", make("span", {},
    ...line.map((token) => token.box ? chip(token, token.char) : token.char),
    pencil(n, "Type the line (e)"))]),
    error ? "" : make("span", { className: "more" }, pencil(lines.length, "Type a line that was missed")));
  const digits = $("picture").src ? byDoubt(current) : [];
  drawBoxes($("stage"), digits, current.record.size, choose);
  $("doubts").replaceChildren(...digits.slice(0, 200).map((digit) =>
    chip(digit, crop(digit.box), make("b", {}, digit.char))));
  mark();
  showItem(current);
}

const pencil = (number, title) =>
  make("button", { className: "edit", onclick: () => edit(number), title });

function chip(digit, ...children) {
  const node = make("button", { className: shade(digit), title: describe(digit) }, ...children);
  node.classList.toggle("loose", !digit.checked && digit.whole < about.sure_p);
  node.onclick = () => choose(digit);
  digit.chips = [...(digit.chips ?? []).filter((other) => other.isConnected), node];
  return node;
}

// A small picture of a place, with some paper around it, upright as it was read.
function crop([x, y, w, h]) {
  const { size, turn } = current.record, image = $("picture"), node = make("canvas");
  const scale = image.naturalWidth / size[0], side = 1.3 * scale * Math.max(w, h);
  const pen = Object.assign(node, { width: 96, height: 96 }).getContext("2d");
  pen.translate(48, 48);
  pen.rotate((turn * Math.PI) / 180);
  if (scale) pen.drawImage(image, scale * (x + w / 2) - side / 2, scale * (y + h / 2) - side / 2,
    side, side, -48, -48, 96, 96);
  return node;
}

// --- corrections -----------------------------------------------------------------------------

function choose(digit) {
  selected = digit;
  if (current && !digit) showDigits();
  mark();
  if (!digit) return;
  $("pad").firstChild.replaceWith(crop(digit.box));
  digit.chips?.at(-1)?.scrollIntoView({ block: "nearest", inline: "center" });
  if (!isNarrow()) digit.node?.scrollIntoView({ block: "nearest" });  // last: the ink is what counts
}

function mark() {
  for (const node of document.querySelectorAll(".selected")) node.classList.remove("selected");
  for (const node of [selected?.node, ...(selected?.chips ?? [])]) node?.classList.add("selected");
  $("pad").hidden = !selected;
}

function correct(char) {
  const order = byDoubt(current), others = order.filter((digit) => digit !== selected);
  const next = others.slice(order.indexOf(selected)).find(isDoubtful) ?? others.find(isDoubtful);
  const lines = linesOf(current);
  if (char !== null) change(selected, char);
  putLines(char !== null ? lines : lines.map((line) => line.filter((token) => token !== selected)));
  selected = digitsOf(current).includes(next) ? next : null; // a sign goes with the last digit of its line
  say("");
  showDigits();
  if (selected) choose(selected);
}

function change(token, char) {
  if (token.char !== char) token.corrected_from ??= token.char;
  return Object.assign(token, { char, reason: null, checked: true });
}

// Lines without a digit go, and spaces at their ends.
function putLines(lines) {
  const isInk = (token) => token.char !== " ";
  const tidy = lines.map((line) => line.filter((token, n) =>
    isInk(token) || (n && isInk(line[n - 1]) && line.slice(n).some(isInk))));
  const tokens = tidy.filter((line) => line.some(isDigit))
    .flatMap((line, n) => (n ? [{ char: "\n" }, ...line] : line));
  Object.assign(current, { tokens, saved: false, unsaved: true });
}

// A line as it was typed: what is alike keeps its box, and so does what stands for as many others.
function retyped(line, chars) {
  const out = [], alike = [...line, null].map(() => Array(chars.length + 1).fill(0));
  for (let n = line.length - 1; n >= 0; n -= 1)
    for (let k = chars.length - 1; k >= 0; k -= 1)
      alike[n][k] = line[n].char === chars[k] ? 1 + alike[n + 1][k + 1]
        : Math.max(alike[n + 1][k], alike[n][k + 1]);
  for (let n = 0, k = 0; n < line.length || k < chars.length; ) {
    const [old, first] = [n, k];
    while ((n < line.length || k < chars.length) && line[n]?.char !== chars[k])
      if (k === chars.length || alike[n + 1]?.[k] === alike[n][k]) n += 1;
      else k += 1;
    const others = k - first === n - old ? line.slice(old, n) : [];
    out.push(...chars.slice(first, k).map((char, at) =>
      others[at]?.box && char !== " " ? change(others[at], char) : { char, checked: true }));
    if (n < line.length) out.push(change(line[n++], chars[k++]));
  }
  return out;
}

function edit(number) {
  choose(null);
  const lines = linesOf(current), line = lines[number] ?? [], old = spelled(line);
  const input = make("input", { value: old, maxLength: 200, ariaLabel: "The whole line" });
  input.onblur = () => {
    const known = [...input.value].filter((char) => /[0-9? ]/.test(char) || about.signs.includes(char));
    if (input.value !== old) putLines(lines.toSpliced(number, 1, retyped(line, known)));
    showDigits();
  };
  input.onkeydown = (event) => {
    event.stopPropagation();
    if (event.key === "Escape") input.value = old;
    if (/^(Enter|Escape)$/.test(event.key)) input.blur();
  };
  $("text").querySelectorAll("span")[number].replaceChildren(input);
  input.focus();
}

const editSelected = () =>
  edit(Math.max(0, linesOf(current).findIndex((line) => line.includes(selected))));

$("pad").append(make("canvas"), ...[..."0123456789"].map((char) =>
  make("button", { onclick: () => correct(char) }, char)),
  make("button", { onclick: () => correct(null), title: "Delete" }, "not a digit"),
  make("button", { onclick: editSelected, title: "Type the line (e)" }, "the line"),
  make("button", { onclick: explain, title: "What carried this answer" }, "why?"),
  make("button", { onclick: () => choose(null), title: "Escape", ariaLabel: "Close" }, "×"));

addEventListener("keydown", (event) => {
  const { key, ctrlKey, metaKey, altKey } = event, isSign = key.length === 1 && about.signs.includes(key);
  if (!current || current.record.error || $("pictures").hidden || $("why").open) return;
  if ((ctrlKey || metaKey || altKey) && !event.getModifierState("AltGraph")) return;
  if (selected && (/^[0-9]$/.test(key) || (isSign && key !== "?"))) correct(key);
  else if (key === "e") editSelected();
  else if (selected && /^(Delete|Backspace)$/.test(event.key)) correct(null);
  else if (event.key === "Escape") choose(null);
  else if (event.key === "Enter" && !event.target.closest("button, a") && !$("confirm").hidden)
    confirm();
  else if (/^Arrow(Left|Right)$/.test(event.key) && digitsOf(current).length) {
    const digits = digitsOf(current), step = event.key === "ArrowRight" ? 1 : -1;
    choose(digits[(digits.indexOf(selected) + step + digits.length) % digits.length]);
  } else return;
  event.preventDefault();
});

// A box that is drawn by hand is a digit that was missed; it stands beside the nearest one.
$("stage").onpointerdown = (event) => {
  const { size } = current.record;
  if (event.target !== $("picture") || event.button || event.pointerType === "touch") return;
  drawBox($("stage"), event, (box) =>
    (box ? insert(box.map((share, n) => Math.round(share * size[n % 2]))) : choose(null)));
};

function insert(box) {
  const middle = ([x, y, w, h]) => [x + w / 2, y + h / 2], [x, y] = middle(box);
  const far = (digit) => Math.hypot(middle(digit.box)[0] - x, 3 * (middle(digit.box)[1] - y));
  const near = digitsOf(current).sort((a, b) => far(a) - far(b))[0];
  const digit = { char: "?", p: 0, margin: 0, box, reason: "added by hand" };
  const behind = near && middle(near.box)[0] < x ? 1 : 0;
  const rest = near || !current.tokens.length ? [] : [{ char: "\n" }];
  current.tokens.splice(near ? current.tokens.indexOf(near) + behind : 0, 0, digit, ...rest);
  Object.assign(current, { saved: false, unsaved: true });
  showDigits();
  choose(digit);
}

// A line with a record, then the picture.
const withRecord = (record, page) => new Blob([JSON.stringify(record), "\n", page.file]);

async function explain() {
  const { page, turn, reader } = current.record, { char } = selected, image = $("why").lastChild;
  const all = reader === "lines" ? pieces(current).find((some) => some.includes(selected)) : [selected];
  say("Looking inside ...");
  try {
    const record = { text: char, page, turn, digits: [{ char, box: around(boxesOf(all)) }] };
    const png = await (await ask("api/explain", withRecord(record, current))).blob();
    URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(png);
    $("why").showModal();
    say("");
  } catch (error) {
    say(`It cannot be explained: ${error.message}`, true);
  }
}

export function corrected(page) {
  const { lines, table, ...record } = page.record, text = textOf(page);
  if (record.error) return record;
  const known = ({ char, p = 1, box = null, corrected_from }) => ({ char, p, box, corrected_from });
  const digits = page.tokens.filter(isDigit).map((token) =>
    ({ ...known(token), margin: token.margin ?? 0, reason: token.reason ?? null }));
  const signs = digitsOf(page).filter((token) => !isDigit(token)).map(known);
  return { ...record, ...(text === record.text && { lines }), text, digits, signs };
}

// A row for each line, in the columns that were found as long as it has as many words.
export function tableOf(page) {
  const { text, table = [] } = page.record, lines = textOf(page).split("\n");
  if (textOf(page) === text || !textOf(page)) return textOf(page) ? table : [];
  return lines.map((line, n) => {
    const words = line.split(" "), cells = lines.length === table.length ? table[n] : [];
    const counts = cells.map((cell) => cell && cell.split(" ").length);
    if (counts.reduce((a, b) => a + Number(b), 0) !== words.length) return [line];
    return counts.map((count) => words.splice(0, count).join(" "));
  });
}

// Lines in pieces, parted by wide gaps as the reader parts them.
function pieces(page) {
  const side = page.record.turn % 180 ? 2 : 3;
  return linesOf(page).flatMap((line) => {
    const size = Math.max(...boxesOf(line).map((box) => box[side]));
    return split(line, ({ char }, n) =>
      char === " " && apart(line[n - 1]?.box, line[n + 1]?.box) > 2.5 * size);
  });
}

const boxesOf = (some) => some.flatMap(({ box }) => (box ? [box] : []));
const apart = ([x, y, w, h] = [], [left, top, wide, high] = []) =>
  Math.max(left - x - w, x - left - wide, top - y - h, y - top - high);

function around(boxes) {
  const [left, top] = [0, 1].map((side) => Math.min(...boxes.map((box) => box[side])));
  const ends = [0, 1].map((side) => Math.max(...boxes.map((box) => box[side] + box[side + 2])));
  return [left, top, ends[0] - left, ends[1] - top];
}

async function confirm() {
  const page = current;
  if (textOf(page).includes("?")) {
    choose(digitsOf(page).find((digit) => digit.char === "?"));
    say("Say first what each ? is, or that it is not a digit.", true);
    return;
  }
  const isWhole = (some) => some[0].box && some.at(-1).box; // an end that was only typed has no place
  const lines = pieces(page).map((some) =>
    ({ text: spelled(some), box: isWhole(some) ? around(boxesOf(some)) : null }));
  const record = { ...corrected(page), lines };
  try {
    const answer = await ask("api/corrections", withRecord(record, page));
    const kept = (await answer.json()).pages;
    page.saved = textOf(page) === record.text; // else it was corrected meanwhile
    page.unsaved = !page.saved;
    if (page.saved) for (const digit of digitsOf(page)) digit.checked = true;
    showItem(page);
    if (page !== current) return;
    const next = pages.slice(pages.indexOf(page)).find((one) => !one.saved && !one.record.error);
    open(next ?? page);
    say(`${nameOf(page)} is saved; ${kept} ${kept === 1 ? "page" : "pages"} by now.`);
  } catch (error) {
    say(`Not saved: ${error.message}`, true);
  }
}
$("confirm").onclick = confirm;

$("copy").onclick = () => copy(textOf(current));
$("copy-all").onclick = () => copy(tsv(pages));
for (const button of $("downloads").querySelectorAll("[data-form]"))
  button.onclick = () => {
    downloads[button.dataset.form](pages);
    for (const page of pages) page.unsaved = false;
  };

addEventListener("beforeunload", (event) =>
  pages.some((page) => page.unsaved) && event.preventDefault());
