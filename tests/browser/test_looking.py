"""What tests of the console wait for may not be there yet."""

import pytest

pytestmark = pytest.mark.browser


def test_an_element_that_is_not_there_yet_is_waited_for(console):
    console.open()
    console.page.evaluate(
        """() => { setTimeout(() => {
          const late = document.createElement("p");
          late.id = "late";
          late.textContent = "there";
          document.body.append(late);
        }, 50); }"""
    )
    console.until("() => document.querySelector('#late').textContent === 'there'")
