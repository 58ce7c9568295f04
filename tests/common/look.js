// Looks at a page in a frame, as a person would: is everything there, can it be read, does anything stick out?
'use strict';

function luminance(color) {
  const parts = color.match(/[\d.]+/g).slice(0, 3).map(part => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
}

function contrast(one, other) {
  const [a, b] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (a + 0.05) / (b + 0.05);
}

function look(frame) {
  const page = frame.contentDocument;
  const view = frame.contentWindow;
  const style = element => view.getComputedStyle(element);
  const problems = [];
  const check = (holds, problem) => { if (!holds) problems.push(problem); };
  const width = page.documentElement.clientWidth;
  check(page.documentElement.scrollWidth <= width, `the page is ${page.documentElement.scrollWidth} wide in ${width}`);
  check(view.performance.getEntriesByType('resource').length === 0, 'something was loaded');
  const background = style(page.body).backgroundColor;
  const figures = [...page.querySelectorAll('figure')].map(figure => {
    const card = style(figure).backgroundColor;
    const name = figure.dataset.figure;
    for (const key of figure.querySelectorAll('.key:not([class*=heat])')) {
      const of = contrast(style(key).backgroundColor, card);
      check(of >= 3, `${name}: ${key.className} has a contrast of ${of}`);
    }
    const panels = [...figure.querySelectorAll('.plot')].map(plot => {
      const svg = plot.querySelector('svg');
      const box = svg.getBoundingClientRect();
      const texts = [...svg.querySelectorAll('text')];
      check(plot.getAttribute('role') === 'img' && plot.getAttribute('aria-label').length > 40, `${name}: a plot has no words`);
      check(box.width >= 300 && box.height >= 100, `${name}: a plot of ${box.width} x ${box.height}`);
      check(texts.length >= 6, `${name}: only ${texts.length} texts`);
      const boxes = texts.map(text => text.getBoundingClientRect());
      texts.forEach((text, at) => {
        const of = boxes[at];
        const inside = of.left >= box.left - 1 && of.right <= box.right + 1 && of.top >= box.top - 1 && of.bottom <= box.bottom + 1;
        check(of.width > 0 && inside, `${name}: ${text.textContent.trim()} is not in the plot: ${of.left - box.left}, ${box.right - of.right}, ${of.top - box.top}, ${box.bottom - of.bottom}`);
        const legible = contrast(style(text).fill, card);
        check(legible >= 4.5, `${name}: ${text.textContent.trim()} has a contrast of ${legible}`);
        for (let other = 0; other < at; other++) {
          const across = Math.min(of.right, boxes[other].right) - Math.max(of.left, boxes[other].left);
          const down = Math.min(of.bottom, boxes[other].bottom) - Math.max(of.top, boxes[other].top);
          check(across <= 1 || down <= 1, `${name}: ${text.textContent.trim()} lies on ${texts[other].textContent.trim()}`);
        }
      });
      const number = (element, name) => Number(element.getAttribute(name));
      return {
        title: plot.parentElement.querySelector('h4').textContent,
        alt: plot.getAttribute('aria-label'),
        bars: [...svg.querySelectorAll('rect')].map(bar => [number(bar, 'x'), number(bar, 'height'), style(bar).fill]),
        lines: [...svg.querySelectorAll('polyline')].map(line => [style(line).stroke, line.getAttribute('points').trim().split(' ').length]),
      };
    });
    const rows = [...figure.querySelectorAll('table tr')].map(row => [...row.cells].map(cell => cell.textContent));
    check(rows.length >= 2, `${name}: no numbers`);
    return { name, panels, rows };
  });
  return {
    problems, figures, background,
    title: page.title,
    headings: [...page.querySelectorAll('h2')].map(heading => heading.textContent),
    // Elements that the page itself never makes.
    strangers: page.querySelectorAll('b, i, img, iframe, object, link, script:not([type="application/json"])').length,
    data: page.getElementById('data').textContent,
  };
}

addEventListener('load', () => {
  const found = [...document.querySelectorAll('iframe')].map(look);
  document.getElementById('found').textContent = JSON.stringify(found);
});
