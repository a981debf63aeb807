// What is taken home: the pages as they are corrected, in the forms that neocog read writes.

import { make } from "./common.js";
import { corrected } from "./app.js";

function save(name, type, text) {
  const link = make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const quoted = (value) => {
  const words = String(value ?? "");
  return /[",\r\n]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
};
const table = (rows) => rows.map((row) => `${row.map(quoted).join(",")}\n`).join("");

// No spreadsheet takes it for a formula (as in neocog.reading.formats).
const inert = (value) => {
  const words = String(value ?? "");
  return /^[=+\-@\t\r\n'＝＋－＠]/.test(words) && !/^[+-]? ?\d+([., ]\d+)*%?$/.test(words)
    ? `'${words}` : words;
};

const inOrder = (pages) => pages.map(corrected).sort((a, b) =>
  a.source < b.source ? -1 : a.source > b.source ? 1 : a.page - b.page);

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
  csv: (pages) => save("digits.csv", "text/csv", table([COLUMNS, ...inOrder(pages).map(row)])),
  jsonl: (pages) => save("digits.jsonl", "application/x-ndjson",
    inOrder(pages).map((record) => `${JSON.stringify(record)}\n`).join("")),
  labels: (pages) => save("labels.csv", "text/csv", table([["file", "text"],
    ...inOrder(pages).filter((record) => !record.error && !record.page)
      .map((record) => [record.source, record.text].map(inert))])),
};
