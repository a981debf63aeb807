// What the pictures and the camera share: asking the server, and boxes over a picture.

export const $ = (id) => document.getElementById(id);
export const about = await (await fetch("api")).json();

export function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

// Send a body; while the server is busy, wait as long as it says.
export async function ask(address, body) {
  for (;;) {
    let answer;
    try {
      answer = await fetch(address, { method: "POST", body });
    } catch {
      throw new Error("could not be sent; is neocog serve still running?");
    }
    if (answer.status === 503) {
      await pause(answer.headers.get("Retry-After") || 1);
      continue;
    }
    if (!answer.ok) throw new Error((await answer.json()).error);
    return answer;
  }
}

export async function read(file, name, more = "") {
  const most = about.max_bytes;
  if (!file.size) throw new Error("is empty");
  if (file.size > most) {
    const mega = (bytes) => `${Math.round(bytes / 2 ** 20)} MB`;
    throw new Error(`has ${mega(file.size)}, at most ${mega(most)} are taken; make it smaller`);
  }
  return (await ask(`api/read?name=${encodeURIComponent(name)}${more}`, file)).json();
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // which needs https
    const area = document.body.appendChild(make("textarea", { value: text }));
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

export function save(name, type, text) {
  const link = make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const quoted = (value) => {
  const words = String(value ?? "");
  return /[",\r\n]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
};
export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
export const csv = (rows) => rows.map((row) => `${row.map(quoted).join(",")}\n`).join("");

// No spreadsheet takes it for a formula (as in neocog.reading.formats).
export const inert = (value) => {
  const words = String(value ?? "");
  return /^[=+\-@\t\r\n'＝＋－＠]/.test(words) && !/^[+-]? ?\d+([., ]\d+)*%?$/.test(words)
    ? `'${words}` : words;
};

export const tsv = (rows) => rows.map((row) =>
  `${row.map((cell) => inert(cell).replaceAll(/[\t\r\n]/g, " ")).join("\t")}\n`).join("");
// The order of records in what is taken home.
export const before = ({ record: a }, { record: b }) =>
  (a.source < b.source ? -1 : a.source > b.source ? 1 : a.page - b.page);

// The characters of a text: its digits and signs have a box and p.
export function tokens(record) {
  const numbers = (record.lines ?? []).flatMap((line) => line.numbers ?? []);
  const wholes = new Map(numbers.flatMap(({ p, chars }) => chars.map(({ box }) => [`${box}`, p])));
  const left = [record.digits, record.signs ?? []].map((some) =>
    some.map((own) => ({ ...own, whole: wholes.get(`${own.box}`) })));
  const parts = [...record.text].map((char) =>
    left.find(([first]) => first?.char === char)?.shift() ?? { char });
  return [...parts, ...left[0]];
}

export const isDoubtful = (digit) =>
  !digit.checked && (digit.char === "?" || digit.p < about.sure_p);

export function shade(digit) {
  if (digit.checked) return "right";
  return digit.char === "?" ? "no" : isDoubtful(digit) ? "unsure" : "sure";
}

// Lay a node over a picture of so many pixels.
export function place(node, box, size) {
  ["left", "top", "width", "height"].forEach((side, n) => {
    node.style[side] = `${(100 * box[n]) / size[n % 2]}%`;
  });
}

const within = (share) => Math.min(Math.max(share, 0), 1);
export const boxOf = ([a, b], [c, d]) => [Math.min(a, c), Math.min(b, d), Math.abs(a - c), Math.abs(b - d)];

// Follow the pointer over a node, in shares of it, until it is let go; returns where it is.
export function follow(stage, event, moved, done = () => {}) {
  const edge = stage.getBoundingClientRect();
  const at = ({ clientX, clientY }) =>
    [within((clientX - edge.left) / edge.width), within((clientY - edge.top) / edge.height)];
  stage.setPointerCapture(event.pointerId);
  stage.onpointermove = (to) => moved(at(to));
  stage.onpointerup = stage.onpointercancel = () => {
    stage.onpointermove = stage.onpointerup = stage.onpointercancel = null;
    done();
  };
  return at(event);
}

// Draw a box over a node; what is smaller than 6 pixels of the screen is none.
export function drawBox(stage, event, done) {
  const frame = stage.appendChild(make("span", { className: "box drawn" }));
  let box = [0, 0, 0, 0];
  const from = follow(stage, event, (to) => {
    box = boxOf(from, to);
    place(frame, box, [1, 1]);
  }, () => {
    frame.remove();
    done(Math.min(box[2] * stage.clientWidth, box[3] * stage.clientHeight) > 6 ? box : null);
  });
}

export function drawBoxes(stage, digits, size, pick) {
  for (const box of stage.querySelectorAll(".box")) box.remove();
  for (const digit of digits) {
    const box = make(pick ? "button" : "span", { className: `box ${shade(digit)}` });
    box.dataset.char = digit.char;
    place(box, digit.box, size);
    if (pick) {
      box.onclick = () => pick(digit);
      box.title = describe(digit);
      digit.node = box;
    }
    stage.append(box);
  }
}

export function describe(digit) {
  if (digit.checked) return `${digit.char}, corrected by you`;
  const sure = `p ${digit.p.toFixed(2)}` + (digit.whole ? `, of the number ${digit.whole.toFixed(2)}` : "");
  return digit.reason ? `${digit.reason}, ${sure}` : sure;
}
