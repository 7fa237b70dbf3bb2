// A list to choose from: metrics, parameters. Only the visible rows are elements of the page, so that tens of thousands of entries stay fluid.

const kRowHeight = 24;

export class TagList {
  constructor(element, filter, chosen) {
    this.element = element;
    this.chosen = chosen;  // called with a tag that was clicked
    this.tags = this.shown = [];
    this.selected = new Set();
    this.active = 0;
    this.prefix = "tag";  // of the ids of rows
    this.space = document.createElement("div");
    this.space.className = "space";
    element.append(this.space);
    element.addEventListener("scroll", () => this.render());
    element.addEventListener("click", event => {
      const row = event.target.closest(".tag");
      if (row) this.choose(Number(row.dataset.index));
    });
    element.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.render()).observe(element);
    this.filter = filter;
    filter.addEventListener("input", () => {
      this.active = 0;
      this.element.scrollTop = 0;
      this.apply();
    });
    filter.addEventListener("keydown", event => {
      if (event.key === "ArrowDown" || event.key === "Enter") {
        this.element.focus();
        event.preventDefault();
      }
    });
  }

  set(tags, selected) {
    this.tags = tags;
    this.selected = selected;
    this.apply();
  }

  apply() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.shown = this.tags.filter(tag => words.every(word => tag.toLowerCase().includes(word)));
    this.space.style.height = `${this.shown.length * kRowHeight}px`;
    this.render();
  }

  render() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / kRowHeight) - 2);
    const count = Math.ceil(this.element.clientHeight / kRowHeight) + 4;
    this.space.replaceChildren(...this.shown.slice(first, first + count).map((tag, i) => {
      const row = document.createElement("div"), index = first + i;
      row.className = index === this.active ? "tag active" : "tag";
      row.id = `${this.prefix}-${index}`;
      row.dataset.index = index;
      row.style.top = `${index * kRowHeight}px`;
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", this.selected.has(tag));
      row.setAttribute("aria-setsize", this.shown.length);
      row.setAttribute("aria-posinset", index + 1);
      row.textContent = (this.selected.has(tag) ? "✓ " : "") + tag;
      row.title = tag;
      return row;
    }));
    this.element.setAttribute("aria-activedescendant", `${this.prefix}-${this.active}`);
  }

  choose(index) {
    if (index >= this.shown.length) return;
    this.active = index;
    this.chosen(this.shown[index]);
    this.render();
  }

  key(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9 };
    if (event.key in moves) {
      this.active = Math.min(this.shown.length - 1, Math.max(0, this.active + moves[event.key]));
      const top = this.active * kRowHeight, height = this.element.clientHeight;
      if (top < this.element.scrollTop) this.element.scrollTop = top;
      if (top + kRowHeight > this.element.scrollTop + height) this.element.scrollTop = top + kRowHeight - height;
      this.render();
    } else if (event.key === "Enter" || event.key === " ") {
      this.choose(this.active);
    } else {
      return;
    }
    event.preventDefault();
  }
}
