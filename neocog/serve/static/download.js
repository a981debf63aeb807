// What is taken home: the pages as they are corrected, in the forms that neocog read writes.

import { before, csv, inert, save, tsv as rowsAsTsv } from "./common.js";
import { corrected, tableOf, textOf } from "./app.js";

const sorted = (pages) => pages.toSorted(before);
const inOrder = (pages) => sorted(pages).map(corrected);
const several = (pages) => new Set(pages.map(({ record }) => record.source)).size > 1;
const whole = (pages) => sorted(pages).filter(({ record }) => !record.error);

// A row for each line of writing, after the name and the page where there are several files.
export const tsv = (pages) => rowsAsTsv(whole(pages).flatMap((page, n) => [
  ...(n && !several(pages) ? [[]] : []), // between pages of one file
  ...tableOf(page).map((row) => [...(several(pages) ? [page.record.source, page.record.page] : []), ...row])]));

const text = (pages) => whole(pages).map((page) => {
  const { source, page: number } = page.record;
  if (!several(pages)) return `${number ? "\n" : ""}${textOf(page)}\n`;
  return `${source}${number ? ` page ${number + 1}` : ""}: ${textOf(page).replaceAll("\n", " | ")}\n`;
}).join("");

const COLUMNS = ["source", "page", "text", "n_digits", "n_rejected", "reasons", "least_p", "model",
  "error"];

function row({ digits, lines = [], ...record }) {
  const numbers = lines.flatMap((line) => line.numbers ?? []), told = numbers.length ? numbers : digits;
  const reasons = [...new Set(digits.map((digit) => digit.reason).filter(Boolean))].sort();
  const least = told.length ? Math.min(...told.map((own) => own.p)).toFixed(4) : "";
  const more = { n_digits: digits.length, reasons: reasons.join(", "), least_p: least,
    n_rejected: digits.filter((digit) => digit.char === "?").length };
  return COLUMNS.map((name) => inert({ ...record, ...more }[name]));
}

export const downloads = {
  txt: (pages) => save("digits.txt", "text/plain", text(pages)),
  tsv: (pages) => save("digits.tsv", "text/tab-separated-values", tsv(pages)),
  csv: (pages) => save("digits.csv", "text/csv", csv([COLUMNS, ...inOrder(pages).map(row)])),
  jsonl: (pages) => save("digits.jsonl", "application/x-ndjson",
    inOrder(pages).map((record) => `${JSON.stringify(record)}\n`).join("")),
  labels: (pages) => save("labels.csv", "text/csv", csv([["file", "text"],
    ...inOrder(pages).filter((record) => !record.error && !record.page)
      .map((record) => [record.source, record.text].map(inert))])),
};
