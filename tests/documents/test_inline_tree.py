"""Inline markup as a tree and as a text with tags."""

from hypothesis import given
from hypothesis import strategies as st

from dragoman.documents.inline_tree import InlineBuilder, InlineNode, flatten, write_inline
from dragoman.documents.marked_text import InlineTag, MarkedText

TREES = st.recursive(
    st.lists(st.text("ab ", min_size=1, max_size=3), max_size=3),
    lambda inner: st.lists(st.one_of(st.text("ab ", min_size=1, max_size=3), inner.map(tuple)), max_size=4),
    max_leaves=12,
)


def as_nodes(tree, keys):
    return [part if isinstance(part, str) else InlineNode(next(keys), as_nodes(part, keys)) for part in tree]


def joined(content):
    """The tree with neighbouring texts joined."""
    result = []
    for item in content:
        if isinstance(item, InlineNode):
            result.append((item.key, joined(item.content)))
        elif result and isinstance(result[-1], str):
            result[-1] += item
        else:
            result.append(item)
    return result


@given(TREES)
def test_a_tree_is_the_same_after_it_was_a_text_with_tags(tree):
    content = as_nodes(tree, iter(range(1000)))
    inline = flatten(content)
    assert joined(inline.nest(inline.marked)) == joined(content)


def test_a_single_tag_behind_another_stays_outside_of_it():
    inline = flatten([InlineNode(0, ["bold"]), InlineNode(1)])
    translation = MarkedText("fett", (InlineTag(0, 4, 0), InlineTag(4, 4, 1)))
    assert joined(inline.nest(translation)) == [(0, ["fett"]), (1, [])]


@given(st.lists(st.tuples(st.sampled_from(["text", "single", "open", "close"]), st.sampled_from("abc")), max_size=30))
def test_tags_are_written_as_they_were_read(events):
    builder = InlineBuilder()
    source = ""
    for kind, name in events:
        if kind == "text":
            builder.add_text(name)
            source += name
        elif kind == "single":
            builder.add_single(f"<{name}/>")
            source += f"<{name}/>"
        elif kind == "open":
            builder.open(name, f"<{name}>")
            source += f"<{name}>"
        else:
            builder.close(name, f"</{name}>")
            source += f"</{name}>"
    inline = flatten(builder.content)
    assert write_inline(inline.nest(inline.marked), builder.tags, str) == source


def test_spaces_around_a_visible_tag_stay():
    inline = flatten(["Run ", InlineNode(0), " now."], visible=[0])
    assert joined(inline.nest(MarkedText("Jetzt laufen.", (InlineTag(12, 12, 0),)))) == ["Jetzt laufen ", (0, []), "."]
    assert joined(inline.nest(MarkedText("Jetzt laufen.", (InlineTag(5, 5, 0),)))) == ["Jetzt ", (0, []), " laufen."]
    assert joined(inline.nest(MarkedText("Jetzt laufen.", (InlineTag(0, 0, 0),)))) == [(0, []), " Jetzt laufen."]


def test_tags_whose_order_matters_swap_their_places():
    inline = flatten(["a ", InlineNode(0), "b", InlineNode(1)], ordered=[0, 1])
    swapped = MarkedText("b a", (InlineTag(0, 0, 1), InlineTag(2, 2, 0)))
    assert joined(inline.nest(swapped)) == [(0, []), "b ", (1, []), "a"]
