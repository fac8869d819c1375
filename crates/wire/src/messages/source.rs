//! Where the bytes of an image or document come from, and where a cited passage stands.

use super::Content;
use crate::object::{object, tagged};

tagged! {
    /// Where the bytes come from. `text` and `content` stand in documents only.
    pub enum Source {
        "base64" => Base64(Base64Source),
        "url" => Url(UrlSource),
        "file" => File(FileSource),
        "text" => Text(TextSource),
        "content" => Content(ContentSource),
    }
}

object! {
    pub struct Base64Source as "base64" {
        required { media_type: String, data: String }
    }
}

object! {
    pub struct UrlSource as "url" {
        required { url: String }
    }
}

object! {
    /// A file uploaded before.
    pub struct FileSource as "file" {
        required { file_id: String }
    }
}

object! {
    pub struct TextSource as "text" {
        required { media_type: String, data: String }
    }
}

object! {
    /// A document made of blocks, which citations then count.
    pub struct ContentSource as "content" {
        required { content: Content }
    }
}

object! {
    /// Whether a document may be cited.
    pub struct CitationsConfig {
        optional { enabled: bool }
    }
}

tagged! {
    /// The passage a piece of text rests on.
    pub enum Citation {
        "char_location" => Characters(CharLocation),
        "page_location" => Pages(PageLocation),
        "content_block_location" => Blocks(BlockLocation),
        "web_search_result_location" => WebSearch(WebSearchLocation),
        "search_result_location" => SearchResult(SearchResultLocation),
    }
}

object! {
    pub struct CharLocation as "char_location" {
        required {
            cited_text: String,
            document_index: u64,
            document_title: Option<String>,
            start_char_index: u64,
            end_char_index: u64,
        }
        nullable {
            /// In answers only.
            file_id: String,
        }
    }
}

object! {
    pub struct PageLocation as "page_location" {
        required {
            cited_text: String,
            document_index: u64,
            document_title: Option<String>,
            start_page_number: u64,
            end_page_number: u64,
        }
        nullable {
            /// In answers only.
            file_id: String,
        }
    }
}

object! {
    pub struct BlockLocation as "content_block_location" {
        required {
            cited_text: String,
            document_index: u64,
            document_title: Option<String>,
            start_block_index: u64,
            end_block_index: u64,
        }
        nullable {
            /// In answers only.
            file_id: String,
        }
    }
}

object! {
    pub struct WebSearchLocation as "web_search_result_location" {
        required { cited_text: String, encrypted_index: String, title: Option<String>, url: String }
    }
}

object! {
    pub struct SearchResultLocation as "search_result_location" {
        required {
            cited_text: String,
            search_result_index: u64,
            source: String,
            title: Option<String>,
            start_block_index: u64,
            end_block_index: u64,
        }
    }
}
