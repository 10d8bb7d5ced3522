// Shows the values under the pointer, a finger or, by the arrow keys, the focus; without it everything else is there.
const number = x => Math.abs(x) >= 1e4 && Math.abs(x) < 1e15 ? x.toLocaleString('en') : String(x);
const numbers = text => text ? text.split(' ').map(Number) : [];

// What can be shown of a chart: a stop for each step, of which the pointer takes the nearest.
function chart(svg) {
  const [low, high, left, right] = numbers(svg.dataset.x);
  const lines = [...svg.querySelectorAll('path[data-p]')].map(p => ({
    look: `<path class="${p.getAttribute('class').replace(' pale', '')}" d="M1 6h14"/>`,
    name: p.dataset.n, at: numbers(p.dataset.p), mean: numbers(p.dataset.m)})).filter(line => line.at.length);
  const nearest = (at, step) => {
    let best = 0;
    for (let i = 0; i < at.length; i += 2) if (Math.abs(at[i] - step) < Math.abs(at[best] - step)) best = i;
    return at.slice(best, best + 2);
  };
  const stops = [...new Set(lines.flatMap(line => line.at.filter((_, i) => i % 2 === 0)))].sort((a, b) => a - b);
  return {stops,
    find: event => {
      const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
      const step = low + (x - left) / (right - left) * (high - low);
      return stops.indexOf(nearest(stops.flatMap(s => [s, s]), step)[0]);
    },
    describe: step => ({x: left + (step - low) / (high - low) * (right - left), y: 0, title: `step ${number(step)}`,
      rows: lines.map(({look, name, at, mean}) => {
        const [own, value] = nearest(at, step), around = mean.length ? `, mean ${number(nearest(mean, step)[1])}` : '';
        return [look, name, number(value) + around + (own === step ? '' : ` at step ${number(own)}`)];
      })})};
}

// Of a pipeline: a stop for each action, `STAGE;KIND;MICRO-BATCH;BEGIN;END`.
function pipeline(svg) {
  const kinds = {F: 'forward', B: 'backward', I: 'backward of the input', W: 'backward of the weights'};
  const stops = [...svg.querySelectorAll('rect[data-t]')];
  return {stops, find: event => stops.indexOf(event.target), describe: rect => {
    const [stage, kind, micro, begin, end] = rect.dataset.t.split(';'), place = rect.getBBox();
    return {x: place.x + place.width / 2, y: place.y + place.height, title: `stage ${stage}, micro-batch ${micro}`, rows: [
      [`<rect class="${rect.getAttribute('class')}" width="16" height="12"/>`, kinds[kind], `${begin} to ${end} ms`]]};
  }};
}

for (const svg of document.querySelectorAll('svg[data-x],svg.lanes')) {
  const figure = svg.closest('figure'), cursor = svg.querySelector('.cursor'), box = figure.querySelector('.values');
  const {stops, find, describe} = svg.dataset.x ? chart(svg) : pipeline(svg);
  let last = stops.length - 1; // that was shown
  const hide = () => box.style.display = cursor.style.display = 'none';
  const show = i => {
    if (i < 0 || i >= stops.length) return hide();
    const {x, y, title, rows} = describe(stops[last = i]), there = figure.getBoundingClientRect();
    box.replaceChildren(Object.assign(document.createElement('b'), {textContent: title}));
    for (const [look, ...texts] of rows) {
      box.insertAdjacentHTML('beforeend', `<svg viewBox="0 0 16 12">${look}</svg>`);
      box.append(...texts.map(text => Object.assign(document.createElement('span'), {textContent: text})));
    }
    cursor.setAttribute('transform', `translate(${x})`);
    const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM()), left = at.x - there.left;
    const side = left < there.width / 2 ? `left:${left + 12}px` : `right:${there.width - left + 12}px`;
    box.style.cssText = 'display:grid;' + (innerWidth <= 740 // no room beside the pointer, so below the drawing
      ? `left:0;right:0;max-width:none;top:${svg.getBoundingClientRect().bottom - there.top}px` : `${side};top:${at.y - there.top + 6}px`);
    cursor.style.display = 'inline';
  };
  svg.tabIndex = 0;
  for (const kind of ['pointerdown', 'pointermove']) svg.addEventListener(kind, event => show(find(event)));
  svg.addEventListener('pointerleave', () => document.activeElement === svg || hide());
  svg.addEventListener('focus', () => show(last));
  svg.addEventListener('blur', hide);
  svg.addEventListener('keydown', event => {
    const to = {ArrowLeft: Math.max(0, last - 1), ArrowRight: Math.min(last + 1, stops.length - 1), Home: 0, End: stops.length - 1};
    if (event.key === 'Escape') return svg.blur();
    if (!(event.key in to)) return;
    event.preventDefault();
    show(to[event.key]);
  });
}
