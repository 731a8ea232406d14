// Elements, and a table of any length of which only the rows in sight exist.

const byId = (id) => document.getElementById(id);

/** An element with a class, properties and children. */
function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** Changes what is not so yet: most of what is looked at each moment stays as it is. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Rows above and below those in sight. */
const OVERSCAN = 6;

/**
 * A grid with one stop of the tab key. Keys move a selection, which stays with its item whatever its place; assistive
 * technology hears of it as the active descendant, and of the number of all rows.
 */
class Grid {
  #element;
  #body;
  #head;
  #columns;
  #told;
  #items = [];
  /** By place. */
  #rows = new Map();
  #spare = [];
  #selected = null;
  #rowHeight = 32;

  /**
   * Columns have a `key`, a `title`, a `sort` if one may sort by them, and `isUnseen` if the title is for those alone who listen. `told` has `keyOf(item)`,
   * `fill(cells, item, place, row)`, and as it likes `open(item)`, `sort(column)` and `make(key)` for a cell.
   */
  constructor(element, columns, told) {
    this.#element = element;
    this.#columns = columns;
    this.#told = told;
    this.#head = make("div", "row head");
    this.#head.setAttribute("role", "row");
    this.#head.setAttribute("aria-rowindex", 1);
    for (const [place, column] of columns.entries()) {
      const cell = make("div", `cell ${column.key}`);
      cell.setAttribute("role", "columnheader");
      cell.setAttribute("aria-colindex", place + 1);
      if (column.sort) {
        const button = make("button", "sort", column.title);
        button.type = "button";
        button.addEventListener("click", () => told.sort(column));
        cell.append(button);
      } else {
        cell.append(make("span", column.isUnseen ? "unseen" : "", column.title));
      }
      this.#head.append(cell);
    }
    const headGroup = make("div", "heads", this.#head);
    headGroup.setAttribute("role", "rowgroup");
    this.#body = make("div", "rows");
    this.#body.setAttribute("role", "rowgroup");
    element.setAttribute("role", "grid");
    element.setAttribute("aria-colcount", columns.length);
    element.tabIndex = 0;
    element.append(headGroup, this.#body);
    element.addEventListener("scroll", () => this.#paint(), { passive: true });
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("focus", () => this.#mark());
    new ResizeObserver(() => this.#paint()).observe(element);
  }

  get element() {
    return this.#element;
  }

  get selected() {
    return this.#items.find((item) => this.#told.keyOf(item) === this.#selected) ?? null;
  }

  /** Shows these. */
  show(items) {
    this.#items = items;
    setAttribute(this.#element, "aria-rowcount", items.length + 1);
    this.#paint();
  }

  /** Says in which column and direction the items are sorted. */
  sortedBy(key, direction) {
    for (const [place, { key: own, sort }] of this.#columns.entries()) {
      if (sort) setAttribute(this.#head.children[place], "aria-sort", own === key ? direction : "none");
    }
  }

  select(key) {
    this.#selected = key;
    this.#paint();
  }

  toTop() {
    this.#element.scrollTop = 0;
  }

  #place() {
    return this.#items.findIndex((item) => this.#told.keyOf(item) === this.#selected);
  }

  #paint() {
    const { clientHeight, scrollTop } = this.#element;
    this.#rowHeight = parseFloat(getComputedStyle(this.#body).getPropertyValue("--row")) || 32;
    const height = this.#rowHeight;
    const total = `${this.#items.length * height}px`;
    if (this.#body.style.height !== total) this.#body.style.height = total;
    const first = Math.max(0, Math.min(Math.floor(scrollTop / height), this.#items.length) - OVERSCAN);
    const last = Math.min(this.#items.length, Math.ceil((scrollTop + clientHeight) / height) + OVERSCAN);
    for (const [place, row] of this.#rows) {
      if (place < first || place >= last) {
        this.#rows.delete(place);
        row.element.remove();
        this.#spare.push(row);
      }
    }
    let before = null;
    for (let place = last - 1; place >= first; place--) {
      let row = this.#rows.get(place);
      if (!row) {
        row = this.#spare.pop() ?? this.#makeRow();
        this.#rows.set(place, row);
        row.place = place;
        row.element.id = `${this.#element.id}-${place}`;
        row.element.setAttribute("aria-rowindex", place + 2);
        row.element.style.transform = `translateY(${place * height}px)`;
        row.height = height;
        this.#body.insertBefore(row.element, before);
      } else if (row.height !== height) {
        row.element.style.transform = `translateY(${place * height}px)`;
        row.height = height;
      }
      before = row.element;
      const item = this.#items[place];
      row.key = this.#told.keyOf(item);
      setAttribute(row.element, "aria-selected", row.key === this.#selected);
      this.#told.fill(row.cells, item, place, row.element);
    }
    this.#mark();
  }

  /** Says which of the rows that exist is selected. */
  #mark() {
    const row = this.#rows.get(this.#place());
    setAttribute(this.#element, "aria-activedescendant", row ? row.element.id : null);
  }

  #makeRow() {
    const element = make("div", "row");
    element.setAttribute("role", "row");
    const cells = {};
    for (const [place, { key }] of this.#columns.entries()) {
      const cell = make("div", `cell ${key}`);
      cell.setAttribute("role", "gridcell");
      cell.setAttribute("aria-colindex", place + 1);
      cells[key] = this.#told.make?.(key, cell) ?? cell;
      element.append(cell);
    }
    const row = { element, cells, place: -1, key: null, height: 0 };
    element.addEventListener("click", (event) => {
      this.select(row.key);
      if (!event.target.closest("a, button")) this.#told.open?.(this.#items[row.place]);
    });
    return row;
  }

  #key(event) {
    if (event.target !== this.#element || event.ctrlKey || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor((this.#element.clientHeight - this.#head.offsetHeight) / this.#rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter") {
      const item = this.selected;
      if (item) this.#told.open?.(item);
    } else if (event.key in steps && this.#items.length > 0) {
      const place = this.#place();
      // The first step goes to the first row.
      const wanted = place < 0 && event.key !== "End" ? 0 : place + steps[event.key];
      const next = Math.min(Math.max(wanted, 0), this.#items.length - 1);
      this.#selected = this.#told.keyOf(this.#items[next]);
      this.#reveal(next);
      this.#paint();
    } else {
      return;
    }
    event.preventDefault();
  }

  #reveal(place) {
    const { clientHeight, scrollTop } = this.#element;
    const [top, room] = [place * this.#rowHeight, clientHeight - this.#head.offsetHeight];
    if (top < scrollTop) this.#element.scrollTop = top;
    else if (top + this.#rowHeight > scrollTop + room) this.#element.scrollTop = top + this.#rowHeight - room;
  }
}
