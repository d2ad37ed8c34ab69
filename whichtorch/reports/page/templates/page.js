"use strict";
// The grid stands in the page as it is; this makes it answer. Texts from runs only ever become text nodes.

const find = (id) => document.getElementById(id);
const grid = find("grid"), panel = find("cell"), body = grid.tBodies[0];
const index = JSON.parse(find("index").textContent);
const FLAGS = { unexpected: 1, changed: 2, flaky: 4, doubted: 8, boundary: 16 };
const AXES = ["torch", "build", "python", "config", "patch"];
const RED = index.red;

const what = index.what.map((text) => text.toLowerCase());
const families = [];
const rows = [];
for (const element of body.rows) {
  if (element.className === "family") families.push({ element, rows: [] });
  else {
    const facts = index.rows[rows.length];
    const row = { ...facts, element, family: families.at(-1), place: rows.length, short: element.cells[0].textContent };
    row.search = [facts.name.toLowerCase(), what[facts.summary], ...(facts.tags || [])].join("\n").toLowerCase();
    families.at(-1).rows.push(row);
    rows.push(row);
  }
}
const columns = index.columns.map((facts, place) => ({ ...facts, place, search: facts.label.toLowerCase() }));
let order = rows; // as they stand on the page
const letterOf = Object.fromEntries(Object.entries(index.outcomes).map(([letter, outcome]) => [outcome, letter]));
const square = (row, column) => row.element.cells[column + 1];
const flagsOf = (row, column) => (row.flags ? parseInt(row.flags[column], 32) || 0 : 0);

// ---- the view, and where it is kept: behind the # of the address

const LISTS = ["outcome", "show", "tag", ...AXES];
const view = { text: "", sort: "", theme: "", cell: "" };
for (const name of LISTS) view[name] = new Set();

function readView() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of LISTS) view[name] = new Set((given.get(name) || "").split(",").filter(Boolean));
  for (const name of ["text", "sort", "theme", "cell"]) view[name] = given.get(name) || "";
}

let writing = 0;
function writeView() {
  // browsers refuse an address that changes with every key
  clearTimeout(writing);
  writing = setTimeout(() => {
    const pairs = [];
    for (const name of LISTS) if (view[name].size) pairs.push([name, [...view[name]].join(",")]);
    for (const name of ["text", "sort", "theme", "cell"]) if (view[name]) pairs.push([name, view[name]]);
    const hash = pairs.map(([name, value]) => name + "=" + encodeURIComponent(value).replace(/%(2F|40|2C|5B|5D|3A)/g, decodeURIComponent)).join("&");
    history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
  }, 120);
}

// ---- filters

let shownBefore = columns.map(() => true).join();
function applyColumns() {
  const shown = columns.map((column) => AXES.every((axis) => !view[axis].size || view[axis].has(column[axis])));
  const key = shown.join();
  if (key === shownBefore) return shown;
  shownBefore = key;
  const changed = columns.filter(({ place }) => shown[place] !== visible[place]);
  for (const row of gridRows) for (const { place } of changed) row.cells[place + 1].hidden = !shown[place];
  const spans = {};
  for (const column of columns) if (shown[column.place]) spans[column.group] = (spans[column.group] || 0) + 1;
  grid.querySelectorAll(".versions > [data-span]").forEach((head, group) => {
    head.hidden = !spans[group];
    head.style.setProperty("--span", spans[group] || 0);
  });
  grid.style.setProperty("--columns", shown.filter(Boolean).length);
  return shown;
}
const gridRows = [...rows.map((row) => row.element), ...grid.querySelectorAll(".titles")];
const hitStyle = document.head.appendChild(document.createElement("style"));

let visible = columns.map(() => true);
let current = null; // the one cell that Tab reaches: never one that a filter hides
function filter() {
  visible = applyColumns();
  const letters = new Set([...view.outcome].map((outcome) => letterOf[outcome]).filter(Boolean));
  const wanted = [...view.show].reduce((all, name) => all | (FLAGS[name] || 0), 0);
  const text = view.text.toLowerCase();
  const told = text ? what.map((one) => one.includes(text)) : [];
  const labelled = columns.map((column) => text !== "" && column.search.includes(text));
  const narrows = letters.size > 0 || wanted > 0;
  let tests = 0, cells = 0;
  for (const row of rows) {
    let count = 0;
    if (!view.tag.size || (row.tags || []).some((tag) => view.tag.has(tag))) {
      const byName = !text || row.search.includes(text);
      for (let column = 0; column < columns.length; column++) {
        const letter = row.letters[column];
        if (!visible[column] || letter === "-") continue;
        if (letters.size && !letters.has(letter)) continue;
        if (wanted && !(flagsOf(row, column) & wanted)) continue;
        if (!byName && !labelled[column] && !told[(row.what || {})[column]]) continue;
        count++;
      }
    }
    const hide = count === 0;
    if (row.element.hidden !== hide) row.element.hidden = hide;
    if (count) { tests++; cells += count; }
  }
  for (const family of families) {
    const hide = view.sort !== "" || family.rows.every((row) => row.element.hidden);
    if (family.element.hidden !== hide) family.element.hidden = hide;
  }
  dim(letters, wanted, narrows);
  if (!current || current.row.element.hidden || !visible[current.column]) enterFirst();
  const isFiltered = LISTS.some((name) => view[name].size) || text !== "";
  find("clear").hidden = !isFiltered;
  find("shown").textContent = isFiltered ? `${tests} of ${rows.length} tests, ${cells} of ${index.total} cells` : "";
}

// What does not match in a row that does is dimmed by a rule, not cell by cell: ten thousand of them take no time.
const FLAG_CLASSES = { unexpected: ".x", changed: ".c", flaky: ":has(i)", doubted: ".v", boundary: ".t" };
function dim(letters, wanted, narrows) {
  const outcomes = [...letters].map((letter) => "." + letter).join();
  const flags = [...view.show].map((name) => FLAG_CLASSES[name]).filter(Boolean).join();
  const hit = (outcomes ? `:is(${outcomes})` : "") + (wanted && flags ? `:is(${flags})` : "");
  const rule = narrows && hit ? `#grid tbody td:not(:empty):not(${hit}){opacity:.3}` : "";
  if (hitStyle.textContent !== rule) hitStyle.textContent = rule;
}

let sorted = "";
function sort() {
  if (view.sort === sorted) return;
  sorted = view.sort;
  const rank = {
    name: (row) => [row.name],
    worst: (row) => {
      let unexpected = 0, hangs = 0, red = 0;
      for (let column = 0; column < columns.length; column++) {
        const isRed = RED.includes(row.letters[column]);
        unexpected += flagsOf(row, column) & 1 && isRed ? 1 : 0;
        hangs += row.letters[column] === "H";
        red += isRed;
      }
      return [-unexpected, -hangs, -red];
    },
    slowest: (row) => [-(row.seconds || 0)],
  }[sorted];
  const ranks = new Map(rows.map((row) => [row, rank ? rank(row) : []]));
  const compare = (one, other) => {
    const [first, second] = [ranks.get(one), ranks.get(other)];
    for (let at = 0; at < first.length; at++) {
      if (first[at] < second[at]) return -1;
      if (first[at] > second[at]) return 1;
    }
    return one.place - other.place;
  };
  order = rank ? [...rows].sort(compare) : rows;
  const elements = document.createDocumentFragment();
  if (rank) {
    for (const family of families) elements.append(family.element);
    for (const row of order) elements.append(row.element);
  } else for (const family of families) elements.append(family.element, ...family.rows.map((row) => row.element));
  body.append(elements);
  grid.classList.toggle("flat", Boolean(rank));
  for (const row of rows) row.element.querySelector(".name").textContent = rank ? row.name : row.short;
}

function show() {
  sort();
  filter();
  for (const chip of document.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", view[chip.dataset.filter].has(chip.value));
  for (const menu of document.querySelectorAll(".menu")) {
    const chosen = view[menu.dataset.filter];
    menu.classList.toggle("on", chosen.size > 0);
    for (const box of menu.querySelectorAll("input")) box.checked = chosen.has(box.value);
  }
  if (find("text").value !== view.text) find("text").value = view.text;
  find("sort").value = view.sort;
  if (view.theme) document.documentElement.dataset.theme = view.theme;
  else delete document.documentElement.dataset.theme;
  writeView();
}

function toggle(name, value) {
  if (!view[name].delete(value)) view[name].add(value);
  show();
}

for (const chip of document.querySelectorAll(".chip")) chip.addEventListener("click", () => toggle(chip.dataset.filter, chip.value));
for (const menu of document.querySelectorAll(".menu")) {
  menu.addEventListener("change", (event) => toggle(menu.dataset.filter, event.target.value));
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && menu.open) { menu.open = false; menu.querySelector("summary").focus(); event.stopPropagation(); }
  });
}
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
find("text").addEventListener("input", (event) => { view.text = event.target.value; filter(); writeView(); });
find("sort").addEventListener("change", (event) => { view.sort = event.target.value; show(); });
find("clear").addEventListener("click", () => {
  for (const name of LISTS) view[name].clear();
  view.text = "";
  show();
  find("text").focus();
});
find("theme").addEventListener("click", () => {
  const isDark = view.theme ? view.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const next = isDark ? "light" : "dark";
  view.theme = next === system ? "" : next;
  show();
});

// ---- one cell

let lines = null, shared = null;
function detailsOf(row) {
  lines ??= find("details").textContent.split("\n");
  shared ??= JSON.parse(lines[0]);
  return JSON.parse(lines[row.place + 1]);
}

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== null && value !== false) element.setAttribute(name, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}
const section = (title, ...children) => make("section", {}, make("h3", {}, title), ...children);
const soft = (text) => make("span", { class: "soft" }, text);

function commandLine(title, text) {
  return make("div", { class: "command" }, make("small", {}, title), make("code", { tabindex: 0 }, text),
    make("button", { type: "button", class: "copy", "aria-label": "copy the command: " + title }, "copy"));
}

function fill(row, column) {
  const facts = detailsOf(row), letter = row.letters[column.place];
  const cell = { ...(facts.cells[column.place] || { attempts: [], left: true }) };
  for (const name of ["reason", "message", "signature", "known", "conflict"]) if (name in cell) cell[name] = shared.strings[cell[name]];
  const environment = shared.environments[column.place], outcome = index.outcomes[letter], flags = flagsOf(row, column.place);
  const parts = [];
  const isUnexpected = Boolean(flags & FLAGS.unexpected);
  const expected = isUnexpected ? "nobody expects this" : RED.includes(letter) ? "expected" + (cell.known ? ": " + cell.known : "") : "as expected" + (cell.known ? ": " + cell.known : "");
  const judged = cell.attempts.length + (cell.more || 0);
  const close = make("button", { type: "button", id: "close", "aria-label": "close" }, "close ", make("kbd", {}, "Esc"));
  parts.push(make("div", { class: "top" }, make("h2", { tabindex: -1, id: "cell-name" }, row.name), close));
  const head = make("p", {}, make("span", { class: "badge solid mark " + letter }, RED.includes(letter) ? outcome.toUpperCase() : outcome), " ",
    make("strong", isUnexpected ? { class: "no" } : {}, expected), soft(judged ? ` · ${row.flaky?.[column.place] || judged + " of " + judged} attempt${judged === 1 ? "" : "s"} · ${cell.attempts.at(-1)[1]} s` : cell.left ? "" : cell.numbers ? " · measured" : " · not run"));
  parts.push(make("section", {}, head, make("p", {}, column.label, soft(` · torch ${column.torch}, build ${column.build}, Python ${column.python}, config ${column.config}${column.patch ? ", patch " + column.patch : ""}`)),
    row.summary === undefined ? null : make("p", { class: "soft" }, index.what[row.summary]),
    cell.left ? make("p", {}, "This page had no room for more of it.") : null,
    facts.turning ? make("p", {}, "This test " + facts.turning + ".") : null,
    environment.problem ? make("p", { class: "no" }, environment.problem) : null));
  if (cell.change) {
    const was = cell.change.was ? `, was ${cell.change.was}` : "";
    const more = ["signature", "why", "script"].map((name) => cell.change[name]).filter(Boolean).join("; ");
    parts.push(section("Since the earlier run", make("p", {}, cell.change.kind + was + (more ? ": " + more : ""))));
  }
  const said = [cell.conflict, cell.reason, cell.signature, cell.message].filter(Boolean);
  if (said.length) parts.push(section("What happened", ...said.map((text) => make("p", {}, text))));

  if (cell.numbers) parts.push(section("Numbers", make("ul", {}, cell.numbers.map(([name, value, change, effect, reference, runs]) =>
    make("li", {}, name + " ", make("strong", effect === "worse" || effect === "different" ? { class: "no" } : {}, value), change ? ` ${change} against ${reference}` : "", effect ? " " : "", effect === "?" ? "not known whether it differs" : effect, soft(" · " + runs))))));

  const isScript = /\.py(\[|$| -- )/.test(row.name);
  const spell = (template) => template.split(shared.here).join(facts.quoted ?? `'${row.name}'`) + (facts.own ?? "");
  const commands = [["run again", isScript ? environment.commands.script : environment.commands.rerun], ["bisect", environment.commands.bisect], ["explain", environment.commands.explain]];
  if (!cell.left) parts.push(section("Commands", ...commands.filter(([, text]) => text).map(([title, text]) => commandLine(title, spell(text)))));

  if (cell.hang) {
    const hang = cell.hang;
    parts.push(section("Where it is stuck" + (hang.kind ? ": " + hang.kind : ""),
      hang.place || hang.summary ? make("p", { class: "stage" }, hang.place || hang.summary) : make("p", { class: "soft" }, "no stacks were taken, or nothing could be made of them"),
      hang.cycle ? make("ol", { class: "cycle", "aria-label": "who waits for whom" }, hang.cycle.map(([words, evidence]) => make("li", {}, words, evidence ? soft(` [${evidence}]`) : null))) : null,
      hang.closed ? make("p", {}, "They wait for each other: nothing in it can ever go on.") : null));
  }
  for (const [title, text, isFolded] of cell.texts || []) {
    const pre = make("pre", { tabindex: 0, "aria-label": title }, text);
    parts.push(isFolded ? make("details", {}, make("summary", {}, title), pre) : section(title, pre));
  }
  if (cell.attempts.length && !(cell.texts || []).length) parts.push(make("p", { class: "soft" }, "Its output, if any, is not in this page."));
  if (cell.conditions) parts.push(section("Conditions", make("ul", {}, cell.conditions.map(([met, asked, seen]) =>
    make("li", {}, make("strong", { class: met ? "yes" : met === false ? "no" : "soft" }, met ? "met" : met === false ? "not met" : "not known"), " ", asked, soft(": " + seen))))));
  if (cell.near !== undefined) parts.push(nearest(row, column, columns[cell.near]));
  if (cell.attempts.length) parts.push(attempts(cell));
  if (!cell.left) parts.push(fingerprint(environment));
  panel.replaceChildren(...parts);
  close.addEventListener("click", closeCell);
}

function nearest(row, column, other) {
  const found = shared.pairs[`${column.place}.${other.place}`];
  const jump = make("button", { type: "button" }, "open " + other.label);
  jump.addEventListener("click", () => openCell(row, other, true));
  const axes = found ? found.axes : AXES.filter((axis) => column[axis] !== other[axis]).map((axis) => [axis, column[axis], other[axis]]);
  const kinds = [["", axes, 0], ["package ", found?.packages || [], found?.["more packages"]], ["", found?.facts || [], found?.["more facts"]]];
  const table = make("table", { class: "plain pair" }, make("thead", {}, make("tr", {}, ...["differs in", "here", "where it passes"].map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, kinds.flatMap(([prefix, those, more]) => [
      ...those.map(([name, mine, theirs]) => make("tr", {}, make("td", {}, prefix + name), make("td", {}, mine), make("td", {}, theirs))),
      more ? make("tr", {}, make("td", { colspan: 3, class: "soft" }, `and ${more} more`)) : null])));
  return section("The nearest environment where it passes", make("p", {}, jump), table);
}

function attempts(cell) {
  const titles = ["outcome", "seconds", "CPU s", "MB", ""];
  const words = (odd = {}) => [odd.stopped && `stopped by ${odd.stopped}, limit ${odd.limit} s`, odd.signal, odd.exit !== undefined && `exit code ${odd.exit}`, odd.note, odd.survivors && "outlived by " + odd.survivors.join(", ")].filter(Boolean).join("; ");
  return section("Attempts", make("table", { class: "plain" }, make("thead", {}, make("tr", {}, titles.map((title) => make("th", { scope: "col" }, title)))),
    make("tbody", {}, cell.attempts.map(([outcome, seconds, cpu, memory, odd]) => make("tr", {}, [outcome, seconds, cpu, memory, words(odd)].map((text) => make("td", {}, String(text)))))) ),
    cell.more ? soft(`and ${cell.more} more`) : null);
}

function fingerprint(environment) {
  const list = (title) => [make("h3", {}, title), make("ul", { class: "facts mono" }, environment[title].map((place) => make("li", {}, shared.strings[place]))),
    environment[title + " left out"] ? soft(`and ${environment[title + " left out"]} more`) : null];
  return make("section", {}, make("details", {}, make("summary", {}, make("strong", {}, "Environment: packages and fingerprint")),
    ...(environment.notes || []).map((note) => make("p", {}, note)), ...list("packages"), ...list("fingerprint")));
}

let opened = null;
function openCell(row, column, isAsked) {
  if (row.letters[column.place] === "-") return;
  fill(row, column);
  opened?.classList.remove("open");
  opened = square(row, column.place);
  opened.classList.add("open");
  panel.hidden = false;
  panel.scrollTop = 0;
  view.cell = row.name + "@" + column.label;
  enter(row, column.place);
  opened.scrollIntoView({ block: "nearest", inline: "nearest" }); // the panel may have covered it
  if (isAsked) find("cell-name").focus({ preventScroll: true });
  writeView();
}

function closeCell() {
  if (panel.hidden) return;
  panel.hidden = true;
  panel.replaceChildren();
  opened?.classList.remove("open");
  view.cell = "";
  writeView();
  opened?.focus();
}

function openNamed(name) {
  const at = name.lastIndexOf("@");
  const row = rows.find((one) => one.name === name.slice(0, at)), column = columns.find((one) => one.label === name.slice(at + 1));
  if (!row || !column) return false;
  if (row.element.hidden || !visible[column.place]) {
    for (const list of LISTS) view[list].clear();
    view.text = "";
    show();
  }
  square(row, column.place).scrollIntoView({ block: "center", inline: "center" });
  openCell(row, column, true);
  return true;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='#']");
  if (link) {
    const given = new URLSearchParams(link.getAttribute("href").slice(1));
    if (given.has("cell")) { event.preventDefault(); openNamed(given.get("cell")); }
    else if (given.has("outcome")) {
      event.preventDefault();
      for (const name of LISTS) view[name].clear();
      view.outcome.add(given.get("outcome"));
      show();
      grid.scrollIntoView();
    }
    return;
  }
  const button = event.target.closest?.(".copy");
  if (button) copy(button);
});

async function copy(button) {
  const code = button.parentElement.querySelector("code");
  let done = true;
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch { // a page from a file may not be allowed to
    const range = document.createRange();
    range.selectNodeContents(code);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    done = document.execCommand("copy");
  }
  button.textContent = done ? "copied" : "select it";
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}

// ---- moving in the grid: one cell at a time can be reached by Tab

function enter(row, column) {
  if (current) current.element.tabIndex = -1;
  const element = square(row, column);
  element.tabIndex = 0;
  if (!element.hasAttribute("aria-label")) element.setAttribute("aria-label", words(row, column));
  current = { row, column, element };
}

function words(row, column) {
  const letter = row.letters[column], flags = flagsOf(row, column);
  const marks = Object.entries(FLAGS).filter(([, bit]) => flags & bit).map(([name]) => name);
  const text = (row.what || {})[column];
  return [letter === "-" ? "not run" : index.outcomes[letter], ...marks, row.name, columns[column].label, ...(text === undefined ? [] : [index.what[text]])].join(", ");
}

function move(down, along) {
  if (!current) return;
  const shownRows = order.filter((row) => !row.element.hidden), shownColumns = columns.filter((column) => visible[column.place]);
  if (!shownRows.length || !shownColumns.length) return;
  const clamp = (value, length) => Math.max(0, Math.min(length - 1, value));
  const at = Math.max(0, shownRows.indexOf(current.row)), across = Math.max(0, shownColumns.findIndex((column) => column.place >= current.column));
  enter(shownRows[clamp(at + down, shownRows.length)], shownColumns[clamp(across + along, shownColumns.length)].place);
  current.element.focus();
  if (!panel.hidden) openCell(current.row, columns[current.column], false);
}

function enterFirst() {
  const row = order.find((one) => !one.element.hidden), column = visible.indexOf(true);
  if (row && column >= 0) enter(row, column);
}

function nextRed(step) {
  const places = [];
  for (const row of order) if (!row.element.hidden) for (const column of columns) if (visible[column.place] && RED.includes(row.letters[column.place])) places.push([row, column.place]);
  if (!places.length) return;
  const before = ([row, column]) => current && (order.indexOf(row) - order.indexOf(current.row) || column - current.column);
  const next = !current ? places[0] : step > 0 ? places.find((place) => before(place) > 0) || places[0] : places.findLast((place) => before(place) < 0) || places.at(-1);
  enter(...next);
  current.element.focus();
  if (!panel.hidden) openCell(current.row, columns[current.column], false);
}

const STEPS = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [10, 0], PageUp: [-10, 0] };
grid.addEventListener("keydown", (event) => {
  const on = event.target.closest("td");
  if (!on || event.altKey || event.metaKey) return;
  const far = event.ctrlKey ? rows.length : 0;
  if (STEPS[event.key] && !event.ctrlKey) move(...STEPS[event.key]);
  else if (event.key === "Home") move(-far, -columns.length);
  else if (event.key === "End") move(far, columns.length);
  else if (event.key === "Enter" || event.key === " ") openCell(current.row, columns[current.column], true);
  else return;
  event.preventDefault();
});

function placeOf(element) {
  const found = element.closest?.("#grid tbody td");
  if (!found) return null;
  const row = rows.find((one) => one.element === found.parentElement);
  return row ? [row, found.cellIndex - 1] : null;
}
grid.addEventListener("click", (event) => {
  const place = placeOf(event.target);
  if (!place) return;
  enter(...place);
  openCell(place[0], columns[place[1]], false);
  current.element.focus({ preventScroll: true });
});
grid.addEventListener("mouseover", (event) => {
  const head = event.target.closest("th[scope=row]");
  if (head && !head.dataset.named) {
    const row = rows.find((one) => one.element === head.parentElement);
    head.dataset.named = "yes";
    head.title = [row.name, row.summary === undefined ? "" : index.what[row.summary], head.title].filter(Boolean).join("\n");
  }
  const place = placeOf(event.target);
  if (place && !event.target.title) event.target.closest("td").title = words(...place);
});

document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
  if (event.key === "Escape") {
    if (find("keys").open) return;
    if (event.target === find("text") && view.text) { view.text = ""; show(); return; }
    closeCell();
    return;
  }
  if (isTyping || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "/") { find("text").focus(); find("text").select(); event.preventDefault(); }
  else if (event.key === "?") find("keys").showModal();
  else if (event.key === "g") current?.element.focus();
  else if (event.key === "n") nextRed(1);
  else if (event.key === "p") nextRed(-1);
});
find("help").addEventListener("click", () => find("keys").showModal());
find("keys-close").addEventListener("click", () => find("keys").close());

// ---- begin

function start() {
  readView();
  show();
  if (view.cell) openNamed(view.cell);
}
addEventListener("hashchange", start);
start();
